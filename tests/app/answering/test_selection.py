"""From ranked hits to the chunks of a prompt, without an index or a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answering import Asked
from app.answering.selection import MISFITS, Distinct, Limits, beside, places_beside, select
from app.library.catalog.records import Document, Found, StoredChunk
from app.settings import Settings, load_settings
from ragcache.errors import ConfigError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXT = " ".join(f"word{place}" for place in "abcdefghijklmnopqrstuvwxyz") + " said the keeper of the light"


def found(number: int, tokens: int = 10, text: str | None = None, document: int = 1) -> Found:
    said = f"text number {number}" if text is None else text
    digest = hashlib.sha256(said.encode()).hexdigest()
    chunk = StoredChunk(number, document, number, 0, len(said), said, tokens, digest, (), (), ())
    return Found(chunk, Document(document, 1, "/a", "", 0, 0, "prose", "a", "ready", None, 0, NOW, NOW))


def numbers(chosen: Sequence[Found]) -> list[int]:
    return [one.chunk.id for one in chosen]


def distinct(*texts: str) -> int:
    seen = Distinct()
    return sum(seen.add(found(0, text=text).chunk) for text in texts)


def test_a_number_ends_it_and_no_more_is_read() -> None:
    read = []

    def ranked() -> Iterator[Found]:
        for number in range(9):
            read.append(number)
            yield found(number)

    selection = select(ranked(), Limits(3))
    assert (numbers(selection.chosen), selection.ended, selection.notes) == ([0, 1, 2], True, ())
    assert read == [0, 1, 2]
    assert not select([found(0)], Limits(3)).ended


def test_a_budget_takes_what_fits_until_two_do_not() -> None:
    sizes = [40, 50, 30, 10, 80, 1]
    selection = select([found(number, size) for number, size in enumerate(sizes)], Limits(None, 100))
    assert MISFITS == 2
    assert (numbers(selection.chosen), selection.ended) == ([0, 1, 3], True)
    assert selection.notes == ("1 of 4 chunks left out: the budget of 100 tokens was full",)
    # What ranks behind the last one taken was not asked for.
    assert select([found(number, 50) for number in range(9)], Limits(None, 100)).notes == ()


def test_with_both_the_budget_takes_of_the_best() -> None:
    sizes = [40, 50, 30, 30, 30, 30, 30, 5, 5]
    selection = select([found(number, size) for number, size in enumerate(sizes)], Limits(8, 100))
    assert numbers(selection.chosen) == [0, 1, 7]
    assert selection.notes == ("5 of 8 chunks left out: the budget of 100 tokens was full",)


def test_the_best_is_taken_in_any_case() -> None:
    selection = select([found(0, 300), found(1, 20)], Limits(None, 100))
    assert numbers(selection.chosen) == [0]
    assert selection.notes == ("the best chunk alone takes 300 tokens, more than the budget of 100",)
    assert select([], Limits(None, 100)).chosen == ()


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 300)), max_size=40),
    st.one_of(st.none(), st.integers(1, 12)),
    st.integers(1, 1000),
)
def test_what_is_selected(ranked: list[tuple[int, int]], most: int | None, budget: int) -> None:
    hits = [found(place, size, f"text number {text}") for place, (text, size) in enumerate(ranked)]
    selection = select(hits, Limits(most, budget))
    chosen = selection.chosen
    assert selection == select(hits, Limits(most, budget))
    assert bool(chosen) == bool(hits)
    assert chosen[:1] == tuple(hits[:1])
    assert numbers(chosen) == sorted(numbers(chosen))  # as they were ranked
    assert len({one.chunk.text for one in chosen}) == len(chosen) <= (most or len(hits))
    assert len(chosen) <= 1 or sum(one.chunk.tokens for one in chosen) <= budget
    # Whatever was looked at and left out would not have fitted where it stood.
    for one in hits[: chosen[-1].chunk.id] if chosen else []:
        before = [other for other in chosen if other.chunk.id < one.chunk.id]
        copy = one.chunk.text in {other.chunk.text for other in hits[: one.chunk.id]}
        full = sum(other.chunk.tokens for other in before) + one.chunk.tokens > budget
        assert one in chosen or copy or full


@pytest.mark.parametrize(
    "dressed",
    [
        TEXT.upper(),
        "\n\n".join(["", *TEXT.split(), "\t"]),
        f"“{TEXT.replace(' said', '; said')}!”",
        f"## **{TEXT}**.",
        f"# On keepers\n\n{TEXT}",
        TEXT.rpartition(" ")[0],
    ],
    ids=["case", "blanks", "punctuation", "markup", "a header line", "a word less"],
)
def test_what_says_the_same_counts_once(dressed: str) -> None:
    assert distinct(TEXT, dressed) == distinct(dressed, TEXT) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{TEXT} 5", f"{TEXT} 6"),
        (f"{TEXT} 5", TEXT),
        (f"{TEXT} -5", f"{TEXT} 5"),
        (f"{TEXT} $5", f"{TEXT} €5"),
        (f"{TEXT} 1.5", f"{TEXT} 1,5"),
        (f"{TEXT} A7-x", f"{TEXT} A7-y"),
        (f"{TEXT} C#", f"{TEXT} C"),
        (f"{TEXT} a != b", f"{TEXT} a == b"),
        (f"Ann: {TEXT}", f"Bob: {TEXT}"),
        (TEXT.replace("wordk", "wordkk"), TEXT),
        (TEXT.replace("said", "never said"), TEXT),
        (" ".join([TEXT] * 9), TEXT),
        ("no", "nothing"),
        ("…", "—"),
    ],
)
def test_what_differs_in_a_word_or_a_number_does_not(one: str, other: str) -> None:
    assert distinct(one, other) == distinct(other, one) == 2


def test_two_quarters_are_two() -> None:
    rows = [f"| Q{quarter} | revenue | 4.{quarter} million | as planned |" * 8 for quarter in range(1, 5)]
    assert distinct(*rows) == 4


def test_the_better_ranked_of_two_is_kept() -> None:
    hits = [found(3, text=TEXT.upper()), found(1, text="else"), found(7, text=TEXT)]
    assert numbers(select(hits, Limits(3)).chosen) == [3, 1]


def test_neighbours_of_the_best_come_first() -> None:
    document = [found(number) for number in range(8)]
    hits = [document[5], document[1]]
    assert places_beside(hits, 1) == [(1, 0), (1, 2), (1, 4), (1, 6)]
    assert [place for _, place in places_beside([document[0]], 2)] == [1, 2]

    def joined(neighbours: int, budget: int = 0) -> list[tuple[int, int]]:
        return [(one.chunk.id, hit.chunk.id) for one, hit in beside(hits, document, Limits(2, budget, neighbours))]

    assert joined(1) == [(4, 5), (6, 5), (0, 1), (2, 1)]
    assert joined(2) == [(4, 5), (3, 5), (6, 5), (7, 5), (0, 1), (2, 1)]
    assert joined(1, 45) == [(4, 5), (6, 5)]
    assert joined(1, 20) == []


def test_a_side_ends_where_one_does_not_fit_or_is_missing() -> None:
    document = [found(0), found(1), found(2, 90), found(3, 5)]
    assert [one.chunk.id for one, _ in beside([document[1]], document, Limits(1, 30, 2))] == [0]
    assert [one.chunk.id for one, _ in beside([document[0]], [document[2]], Limits(1, 0, 2))] == []


def test_a_neighbour_that_says_the_same_does_not_join() -> None:
    document = [found(0, text=TEXT), found(1, text="between"), found(2, text=TEXT.upper())]
    assert [one.chunk.id for one, _ in beside([document[1]], document, Limits(1, 0, 1))] == [0]


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=20),
    st.lists(st.integers(0, 19), unique=True, max_size=5),
    st.integers(1, 3),
    st.integers(0, 900),
)
def test_neighbours_keep_the_budget(sizes: list[int], places: list[int], neighbours: int, budget: int) -> None:
    document = [found(number, size) for number, size in enumerate(sizes)]
    hits = [document[place] for place in places if place < len(document)]
    there = [one for one in document if (1, one.chunk.ordinal) in places_beside(hits, neighbours)]
    joined = beside(hits, there, Limits(len(hits) or 1, budget, neighbours))
    every = [*numbers(hits), *(one.chunk.id for one, _ in joined)]
    assert len(set(every)) == len(every)
    assert all(abs(one.chunk.ordinal - hit.chunk.ordinal) <= neighbours for one, hit in joined)
    if joined and budget:
        assert sum(sizes[number] for number in every) <= budget
    if not budget:
        assert set(every) == set(numbers(hits)) | {one.chunk.id for one in there}


def test_what_is_asked_wins_over_the_settings() -> None:
    def limits(settings: Settings, **asked: int) -> tuple[int | None, int, int]:
        made = Limits.of(Asked(**asked), settings)  # type: ignore[arg-type]  # all of these are numbers
        return made.chunks, made.tokens, made.neighbours

    assert limits(Settings()) == (5, 0, 0)
    assert limits(Settings(top_tokens=900, neighbours=1)) == (None, 900, 1)
    assert limits(Settings(), top_tokens=900) == (None, 900, 0)
    # A number that somebody has set is meant beside a budget too.
    assert limits(Settings(top_k=3, top_tokens=900)) == (3, 900, 0)
    assert limits(Settings(top_tokens=900), top_k=4) == (4, 900, 0)
    assert limits(Settings(top_tokens=900, neighbours=1), top_tokens=0, neighbours=0) == (5, 0, 0)
    for name in ("top_tokens", "neighbours"):
        with pytest.raises(ConfigError, match=f"{name}=-1: give 0 or more"):
            limits(Settings(), **{name: -1})


def test_a_number_of_the_environment_is_meant_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".env"
    file.write_text("RAGCACHE_TOP_K=3\n")
    file.chmod(0o600)
    assert Limits.of(Asked(), load_settings(file, top_tokens=900)).chunks == 3
    monkeypatch.setenv("RAGCACHE_TOP_K", "4")
    assert Limits.of(Asked(), load_settings(None, top_tokens=900)).chunks == 4
    monkeypatch.delenv("RAGCACHE_TOP_K")
    assert Limits.of(Asked(), load_settings(None, top_tokens=900)).chunks is None
