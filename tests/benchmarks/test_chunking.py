from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from typer.testing import CliRunner

from app.settings import Settings, load_settings
from benchmarks.chunking import ChunkingBenchOptions, llama
from benchmarks.chunking.collections import CorpusCollections, CutText, collections_apart
from benchmarks.chunking.data import Corpus, Span, SpanQuestion, read_corpora, read_questions, united
from benchmarks.chunking.llama import NAME, llama_finders
from benchmarks.chunking.measurement import OURS, MarkedCorpora, main, measure, overlap
from benchmarks.cli import app
from ragcache.errors import ConfigError
from retriever.searcher import SearchOptions
from splitter.base import Piece
from tests.benchmarks.conftest import FRUIT

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)).map(lambda one: (one[0], sum(one))), min_size=1)
LINES = ("Apples are red.", "Pears are green.", "Plums are blue.", "Quinces are yellow.", "Nobody eats the lamp.")
TEXT = "\n".join(LINES)
STARTS = [TEXT.index(line) for line in LINES]
PIECES = [Piece(start, start + len(line)) for start, line in zip(STARTS, LINES, strict=True)]
LAMP = (PIECES[4].start, PIECES[4].end)
QUESTIONS = ("Which fruit is blue like the sky?", "Who eats lamps and plums?", "What is yellow or green?")
BM25_ROWS = ["llama-index reciprocal_rerank", "llama-index relative_score"]


@pytest.fixture(scope="module")
def collections(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CorpusCollections]:
    folder = tmp_path_factory.mktemp("chunking")
    settings = load_settings(
        None, model=str(tiny_folder), cache_dir=folder / "cache", data_dir=folder / "data", device="cpu"
    )
    with collections_apart(settings) as opened:
        yield opened
    assert list(settings.cache_dir.glob("bench-*")) == [], "nothing is left behind"
    assert not settings.data_dir.exists(), "the user's own collections are not touched"


@pytest.fixture
def cut(collections: CorpusCollections) -> CutText:
    return collections.fill(Corpus("fruit", TEXT, "prose"), PIECES)


def asked(**changes: Any) -> ChunkingBenchOptions:
    return ChunkingBenchOptions(corpora=Path(), questions=Path(), **changes)


@given(references=SPANS, retrieved=SPANS)
def test_overlap_counts_each_character_once(references: list[Span], retrieved: list[Span]) -> None:
    wanted, got = ({place for span in spans for place in range(*span)} for spans in (references, retrieved))
    shared = len(wanted & got)
    expected = (shared / len(wanted), shared / len(got), shared / len(wanted | got))
    assert overlap(united(references), retrieved) == pytest.approx(expected)


@pytest.mark.parametrize(("retrieval", "mode"), [("vector", "vector"), ("words", "keyword"), ("hybrid", "hybrid")])
def test_chunks_are_found_as_the_product_ranks_them(
    collections: CorpusCollections, cut: CutText, retrieval: str, mode: str
) -> None:
    find = collections.finder(cut, retrieval, 3)
    searcher = collections.library.searcher(cut.collection)
    spans = {chunk: (piece.start, piece.end) for chunk, piece in zip(cut.chunk_ids, cut.pieces, strict=True)}
    for question in QUESTIONS:
        hits = searcher.search(question, 3, options=SearchOptions(mode=mode))
        assert hits
        assert find(question) == [spans[hit.id] for hit in hits]


def test_what_the_environment_says_of_questions_changes_no_figure(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = {"top_tokens": 7, "neighbours": 2, "mmr": 0.1, "rerank_depth": 1}
    for name, value in changed.items():
        monkeypatch.setenv(f"RAGCACHE_{name.upper()}", str(value))
    settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path, data_dir=tmp_path, device="cpu")
    assert {name: getattr(settings, name) for name in changed} == changed
    with collections_apart(settings) as opened:
        find = opened.finder(opened.fill(Corpus("fruit", TEXT, "prose"), PIECES), "words", 2)
        assert len(find("Who eats the lamp, apples and pears?")) == 2
        used = opened.library.settings
    assert {name: getattr(used, name) for name in changed} == {
        name: Settings.model_fields[name].default for name in changed
    }


def test_headings_are_embedded_as_an_ingest_embeds_them(collections: CorpusCollections) -> None:
    """The same text below other headings has another vector."""
    headed = [Piece(piece.start, piece.end, ("The lighthouse",)) for piece in PIECES[:1]] + PIECES[1:4]
    find = collections.finder(collections.fill(Corpus("fruit", TEXT, "prose"), headed), "vector", 1)
    assert find("lighthouse") == [(PIECES[0].start, PIECES[0].end)]


def test_the_chunks_that_are_found_are_measured(collections: CorpusCollections) -> None:
    corpora = {name: Corpus(name, TEXT, "prose") for name in ("one", "two")}
    questions = [
        SpanQuestion("Who eats the lamp?", "one", (LAMP,)),
        SpanQuestion("Who eats the lamp?", "two", ((LAMP[0] - 10, LAMP[1]),)),
        SpanQuestion("lamp", "two", (LAMP,)),
    ]
    options = asked(retrieval=("words",), by_corpus=True, top_k=1)
    rows = measure("mine", lambda corpus: PIECES, MarkedCorpora(corpora, questions), collections, options)
    assert [list(row) for row in rows] == [
        ["splitter", "retrieval", "corpus", "recall", "precision", "iou", "mean_tokens", "chunks", "seconds"]
    ] * 3
    length = LAMP[1] - LAMP[0]
    part = length / (length + 10)
    figures = {str(row["corpus"]): (row["recall"], row["precision"], row["iou"], row["chunks"]) for row in rows}
    assert list(figures) == ["all", "one", "two"]
    assert figures["one"] == pytest.approx((1, 1, 1, 5))
    assert figures["two"] == pytest.approx(((1 + part) / 2, 1, (1 + part) / 2, 5))
    assert figures["all"] == pytest.approx(((2 + part) / 3, 1, (2 + part) / 3, 10)), "of questions, not of corpora"
    counted = np.mean([collections.models.template.count(line) for line in LINES])
    assert [row["mean_tokens"] for row in rows] == pytest.approx([counted] * 3)


def test_without_its_bm25_llama_index_fuses_our_words(
    collections: CorpusCollections, cut: CutText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "BM25_MODULE", "llama_index.retrievers.not_there")
    finders = dict(llama_finders(collections, cut, ("vector", "words", "hybrid"), 2))
    assert list(finders) == [f"{NAME} vector", *(f"{name}, our words" for name in BM25_ROWS)]
    for find in finders.values():
        found = find("Who eats the lamp?")
        assert len(found) == 2
        assert found[0] == LAMP
    ours = collections.finder(cut, "vector", 2)
    assert all(finders[f"{NAME} vector"](question) == ours(question) for question in QUESTIONS), "the same vectors"


def test_with_it_llama_index_fuses_its_own(
    collections: CorpusCollections, cut: CutText, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its place, one that finds the first chunk alone."""

    class First(BaseRetriever):
        @classmethod
        def from_defaults(cls, nodes: Sequence[BaseNode], similarity_top_k: int) -> First:
            assert len(nodes) == similarity_top_k == len(PIECES), "as deep as ours, but no deeper than the corpus"
            made = cls()
            made.first = nodes[0]
            return made

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return [NodeWithScore(node=self.first, score=1.0)]

    monkeypatch.setattr(llama, "import_module", lambda name: SimpleNamespace(BM25Retriever=First))
    finders = dict(llama_finders(collections, cut, ("hybrid",), 2))
    assert list(finders) == BM25_ROWS
    for find in finders.values():
        assert set(find("Who eats the lamp?")) == {LAMP, (PIECES[0].start, PIECES[0].end)}


def write_fruit(folder: Path) -> list[str]:
    """A corpus with questions, and the flags that name them."""
    text = "".join(f"# {name}\n\n" + f"{name} grow in the north, and are eaten there. " * 12 + "\n" for name in FRUIT)
    (folder / "fruit.md").write_text(text)
    lines = [
        {"question": f"Where do {name} grow?", "corpus": "fruit",
         "references": [{"start": text.index(f"{name} grow"), "end": text.index(f"{name} grow") + 30}]}
        for name in FRUIT
    ]  # fmt: skip
    (folder / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ["--corpora", str(folder), "--questions", str(folder / "q.jsonl")]


@pytest.mark.slow
def test_the_command_compares_all_splitters(tmp_path: Path, tiny_folder: Path) -> None:
    words = ["chunking", *write_fruit(tmp_path), "--model", str(tiny_folder), "--cache-dir", str(tmp_path / "cache")]
    result = CliRunner().invoke(app, [*words, "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "out.json").read_text())
    assert set(document) == {"command", "versions", "settings", "rows"}
    rows: dict[str, list[str]] = {}
    for row in document["rows"]:
        assert "corpus" not in row
        rows.setdefault(row["splitter"], []).append(row["retrieval"].removesuffix(", our words"))
    ours, theirs = ["vector", "words", "hybrid"], ["llama-index vector", *BM25_ROWS]
    assert rows == {
        "auto": ours,
        "fixed": ours,
        "semantic": ours,
        "structure": ours,
        "auto, without headings": ours,
        "llama-index SentenceSplitter(200)": ours + theirs,
        "llama-index SentenceSplitter(400)": ours + theirs,
        "llama-index SemanticSplitterNodeParser": ours + theirs,
    }
    assert all(0 < row["recall"] <= 1 and row["chunks"] >= 1 for row in document["rows"])
    assert {"top_k", "min_tokens", "max_tokens", "embedder", "model", "questions"} <= set(document["settings"])


def test_the_texts_that_we_wrote_hold_their_answers() -> None:
    questions = read_questions(OURS / "questions.jsonl")
    corpora = read_corpora(OURS, questions)
    assert len(questions) == 210 and len(corpora) == 6
    for line in (OURS / "questions.jsonl").read_text().splitlines():
        record = json.loads(line)
        text = corpora[record["corpus"]].text
        assert all(text[one["start"] : one["end"]] == one["text"] for one in record["references"]), record


def test_texts_of_ones_own_come_with_questions(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--corpora and --questions go together"):
        main(load_settings(None, cache_dir=tmp_path), ChunkingBenchOptions(corpora=tmp_path), None)


@pytest.mark.slow
def test_a_short_run_has_what_was_asked_for(tmp_path: Path, tiny_folder: Path) -> None:
    flags = write_fruit(tmp_path)
    settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", device="cpu")
    own = {"corpora": tmp_path, "questions": Path(flags[-1])}
    options = ChunkingBenchOptions(**own, retrieval=("hybrid",), splitters=("fixed", "structure"), peers=False)
    rows = main(settings, options, None)
    assert [(row["splitter"], row["retrieval"]) for row in rows] == [("fixed", "hybrid"), ("structure", "hybrid")]


@pytest.mark.parametrize(
    ("flag", "value", "told"),
    [
        ("--retrieval", "vector,meaning", "unknown retrieval 'meaning': choose from vector, words, hybrid"),
        ("--splitters", "words", "unknown splitter 'words': choose from auto, fixed, semantic, structure"),
        ("--splitters", "auto,,fixed", "has an empty item"),
    ],
)
def test_a_name_that_is_not_there_is_told(flag: str, value: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        CliRunner().invoke(app, ["chunking", *write_fruit(tmp_path), flag, value], catch_exceptions=False)
