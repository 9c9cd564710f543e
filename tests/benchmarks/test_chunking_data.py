from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chunking.data import SpanQuestion, read_corpora, read_questions, united
from ragcache.errors import ConfigError

LINE = {"corpus": "a", "question": "Q?", "references": [{"start": 4, "end": 6}, {"start": 0, "end": 2, "text": "x"}]}


def write(folder: Path, *lines: object) -> Path:
    file = folder / "questions.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return file


def test_questions_and_the_corpora_that_they_name(tmp_path: Path) -> None:
    questions = read_questions(write(tmp_path, LINE, ""))
    assert questions == (SpanQuestion("Q?", "a", ((0, 2), (4, 6))),)
    (tmp_path / "a.md").write_bytes(b"one\r\ntwo")
    (tmp_path / "b.md").write_text("not asked about")
    corpora = read_corpora(tmp_path, questions)
    assert [(corpus.name, corpus.text, corpus.kind) for corpus in corpora.values()] == [("a", "one\r\ntwo", "markdown")]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1 is no JSON"),
        ("[]", "line 1 lacks"),
        ({"corpus": "a", "question": "Q?"}, "line 1 lacks 'references'"),
        (LINE | {"references": []}, "give at least one"),
        (LINE | {"references": [{"start": 3, "end": 3}]}, "0 <= start < end"),
        ("", "holds no questions"),
    ],
)
def test_bad_questions_are_told(tmp_path: Path, line: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_questions(write(tmp_path, line))


def test_bad_corpora_are_told(tmp_path: Path) -> None:
    questions = read_questions(write(tmp_path, LINE))
    with pytest.raises(ConfigError, match="holds 0 texts named a"):
        read_corpora(tmp_path, questions)
    (tmp_path / "a.txt").write_text("abc")
    with pytest.raises(ConfigError, match="ends at character 6, and a has 3"):
        read_corpora(tmp_path, questions)
    with pytest.raises(ConfigError, match="cannot read"):
        read_questions(tmp_path / "none.jsonl")


@given(spans=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)).map(lambda one: (one[0], sum(one)))))
def test_united_spans_hold_the_same_characters_once(spans: list[tuple[int, int]]) -> None:
    result = united(spans)
    assert [place for span in result for place in range(*span)] == sorted({p for span in spans for p in range(*span)})
    assert all(before[1] < after[0] for before, after in pairwise(result))
