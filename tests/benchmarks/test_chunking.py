from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.chunking.data import Corpus, Span, SpanQuestion, united
from benchmarks.chunking.measurement import Cut, measure, overlap
from benchmarks.cli import app
from tests.benchmarks.conftest import FRUIT, letters
from tests.splitter.conftest import Words

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)).map(lambda one: (one[0], sum(one))), min_size=1)


@given(references=SPANS, retrieved=SPANS)
def test_overlap_counts_each_character_once(references: list[Span], retrieved: list[Span]) -> None:
    wanted, got = ({place for span in spans for place in range(*span)} for spans in (references, retrieved))
    shared = len(wanted & got)
    expected = (shared / len(wanted), shared / len(got), shared / len(wanted | got))
    assert overlap(united(references), retrieved) == pytest.approx(expected)


def test_the_nearest_chunks_are_measured() -> None:
    text = "aaaa bbbb cccc dddd"
    corpus = Corpus("x", text, "prose")
    cuts = [Cut((start, start + 4), text[start : start + 4]) for start in (0, 5, 10, 15)]
    questions = [SpanQuestion("bbb", "x", ((5, 9),)), SpanQuestion("ccd", "x", ((5, 14),))]
    row = measure("mine", lambda corpus: cuts, {"x": corpus}, questions, Words(), letters, top_k=2)
    assert list(row) == ["splitter", "recall", "precision", "iou", "mean_tokens", "chunks", "seconds"]
    # The first finds its four characters and four others; the second the four of nine in 'cccc', and 'dddd'.
    expected = {"recall": np.mean([1, 4 / 9]), "precision": 0.5, "iou": np.mean([4 / 8, 4 / 13]), "mean_tokens": 1}
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert (row["splitter"], row["chunks"]) == ("mine", 4)


@pytest.mark.slow
def test_the_command_compares_all_splitters(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retriever.embedder.Embedder.embed", lambda self, texts: letters(texts))
    text = "".join(f"# {name}\n\n" + f"{name} grow in the north, and are eaten there. " * 20 + "\n" for name in FRUIT)
    (tmp_path / "fruit.md").write_text(text)
    lines = [
        {"question": f"Where do {name} grow?", "corpus": "fruit",
         "references": [{"start": text.index(f"{name} grow"), "end": text.index(f"{name} grow") + 30}]}
        for name in FRUIT
    ]  # fmt: skip
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [
        "chunking",
        "--corpora",
        str(tmp_path),
        "--questions",
        str(tmp_path / "q.jsonl"),
        "--model",
        str(tiny_folder),
    ]
    result = CliRunner().invoke(app, [*words, "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "out.json").read_text())
    assert set(document) == {"command", "versions", "settings", "rows"}
    assert [row["splitter"] for row in document["rows"]] == [
        "auto",
        "fixed",
        "semantic",
        "structure",
        "auto, headings not embedded",
        "llama-index SentenceSplitter(200)",
        "llama-index SentenceSplitter(400)",
        "llama-index SemanticSplitterNodeParser",
    ]
    assert all(0 < row["recall"] <= 1 and row["chunks"] >= 1 for row in document["rows"])
    assert {"top_k", "min_tokens", "max_tokens", "embedder", "model", "questions"} <= set(document["settings"])
