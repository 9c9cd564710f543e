"""Splitters as settings write them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitter import SplitterError, make_splitter
from splitter.base import ChunkLimits
from splitter.spec import LONGEST, parse_spec, written
from tests.splitter.conftest import Words, letters

KEYS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
PLAIN = st.text("abcXYZ/-.é", min_size=1)
VALUES = st.booleans() | st.integers() | st.none() | PLAIN.filter(lambda text: text not in ("-", "true", "null"))


def split(spec: str, text: str, limits: ChunkLimits, kind: str = "prose") -> list[str]:
    return [text[piece.start : piece.end] for piece in make_splitter(spec, Words(), letters, limits).split(text, kind)]


@pytest.mark.parametrize(
    ("spec", "name", "settings"),
    [
        ("auto", "auto", {}),
        (" semantic : granularity = paragraph ", "semantic", {"granularity": "paragraph"}),
        ("a.B:n=-3,x=0.5,y=true,z=null,s=a b", "a.B", {"n": -3, "x": 0.5, "y": True, "z": None, "s": "a b"}),
        ('a.B:s=", ",t="\\n\\n",u="",v=["p","h1"],w=1_000', "a.B",
         {"s": ", ", "t": "\n\n", "u": "", "v": ["p", "h1"], "w": "1_000"}),
        ("a.B:path=x=y:z", "a.B", {"path": "x=y:z"}),
    ],
)  # fmt: skip
def test_values_are_json_or_text(spec: str, name: str, settings: dict[str, object]) -> None:
    assert parse_spec(spec) == (name, settings)


@given(st.dictionaries(KEYS, VALUES, min_size=1))
def test_what_is_written_is_read(settings: dict[str, bool | int | str | None]) -> None:
    text = ",".join(f"{key}={written(value)}" for key, value in settings.items())
    assert parse_spec(f"name:{text}") == ("name", settings)
    quoted = ",".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
    assert parse_spec(f"name:{quoted}") == ("name", settings)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("semantic:", "'' is no setting; write name:key=value"),
        ("semantic:granularity", "'granularity' is no setting"),
        ("semantic:granularity=", "is no setting"),
        ("semantic:granularity=passage,", "'' is no setting"),
        ("semantic:granularity=passage,granularity=passage", "setting 'granularity' is given twice"),
        ("semantic:granularity=word", "unknown granularity 'word': choose from sentence, paragraph, passage"),
        ("semantic:granularity=3", "unknown granularity '3'"),
        ("semantic:granularity=[1]", r"unknown granularity '\[1\]'"),
        ("auto:size=3", r"splitter 'auto' has no setting 'size' \(=3\): choose from granularity"),
        ("fixed:granularity=passage", r"splitter 'fixed' has no setting 'granularity' \(=passage\): it takes none"),
        ("clever:granularity=passage", "unknown splitter 'clever': choose from auto, fixed, semantic, structure, or"),
        ("", "unknown splitter ''"),
        ("auto\n", "cannot be printed"),
        ("x" * (LONGEST + 1), "has 1,001 characters: use at most 1,000"),
    ],
)
def test_what_is_no_splitter_is_told_on_one_line(spec: str, told: str) -> None:
    with pytest.raises(SplitterError, match=told) as raised:
        make_splitter(spec, Words(), letters)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["semantic", "structure", "auto"])
def test_paragraphs_and_passages_stay_whole(name: str) -> None:
    """Meaning turns inside of each second paragraph."""
    apples, boats, clocks, dogs = (f"{word} {word} {word} {word}. " for word in ("apples", "boats", "clocks", "dogs"))
    paragraphs = [apples * 2, apples * 2 + boats * 4, clocks * 2, clocks * 2 + dogs * 4]
    first, second, third, fourth = paragraphs = [one.strip() for one in paragraphs]
    text = f"{first}\n\n{second}\n\n\n\n{third}\n\n{fourth}"

    def whole(size: str, limits: ChunkLimits) -> list[str]:
        pieces = split(f"{name}:granularity={size}", text, limits)
        return [one for one in (*paragraphs, *text.split("\n\n\n\n")) if any(one in piece for piece in pieces)]

    assert whole("sentence", ChunkLimits(5, 35)) == [first, third]
    assert split(f"{name}:granularity=sentence", text, ChunkLimits(5, 35)) == split(name, text, ChunkLimits(5, 35))
    assert whole("paragraph", ChunkLimits(5, 35)) == whole("passage", ChunkLimits(5, 35)) == paragraphs
    assert whole("passage", ChunkLimits(5, 50)) == [*paragraphs, *text.split("\n\n\n\n")]


def test_a_heading_begins_its_passage() -> None:
    first, second = "# A\nApples are red.\n\nBoats are slow.", "# B\nClocks are round.\n\nDogs are loud."
    spec = "structure:granularity=passage"
    assert split(spec, f"{first}\n\n{second}", ChunkLimits(2, 20), "markdown") == [first, second]
