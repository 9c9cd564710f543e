"""The benchmark of questions to a large collection; the figures themselves are the machine's."""

from __future__ import annotations

import json
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from app.compose import opened
from app.models.loading import load_embedder
from app.samples import read_samples
from app.settings import Settings, load_settings
from benchmarks.search import SearchBenchOptions
from benchmarks.search import data as search_data
from benchmarks.search import measurement as search
from benchmarks.search.data import Topics, fill, vocabulary
from ragcache.errors import ConfigError
from retriever.sentences import unpack

TEXTS = list(read_samples().values())


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(search_data, "TOPICS", 20)
    monkeypatch.setattr(search_data, "VOCABULARY", 3000)
    monkeypatch.setattr(search_data, "TOGETHER", 30)
    monkeypatch.setattr(search, "WARM_UP", 1)
    return load_settings(
        None,
        model=str(tiny_folder),
        cache_dir=tmp_path / "cache",
        data_dir=tmp_path / "data",
        dtype="float32",
        device="cpu",
    )


def test_a_row_with_the_stages_of_a_question(settings: Settings, tmp_path: Path) -> None:
    out = tmp_path / "search.json"
    rows = search.run(settings, TEXTS, SearchBenchOptions(100, 3, 300, 2, 60, 0), out)
    written = json.loads(out.read_text())
    assert written["rows"] == rows
    assert written["settings"]["linker"] == "auto"
    (row,) = rows
    assert list(row) == [
        "chunks", "mode", "embed_ms", "search_ms", "rows_ms", "total_p50_ms", "total_p99_ms", "ttft_linked_ms", "share"
    ]  # fmt: skip
    assert (row["chunks"], row["mode"]) == (100, "hybrid")
    figures = {name: value for name, value in row.items() if isinstance(value, float)}
    assert all(value > 0 for value in figures.values())
    assert figures["embed_ms"] + figures["search_ms"] < 2 * figures["total_p50_ms"]
    assert figures["total_p50_ms"] <= figures["total_p99_ms"]
    assert figures["share"] == pytest.approx(figures["total_p50_ms"] / figures["ttft_linked_ms"])
    assert list(settings.cache_dir.glob("bench-*")) == [], "nothing is left behind"
    assert not settings.data_dir.exists(), "the user's own collections are not touched"


@pytest.mark.slow
def test_questions_find_chunks_of_their_topic(settings: Settings) -> None:
    topics = Topics.of(TEXTS, load_embedder(settings), 0)
    with opened(settings) as (library, _):
        collection = library.collection_or_new()
        assert list(fill(library, collection, topics, 100)) == [30, 60, 90, 100]
        searcher = library.searcher(collection)
        for question in topics.questions(10):
            best = searcher.search(question, 1)[0].id
            asked = question.removesuffix("?").split()[-1]
            assert asked in library.catalog.chunks.found([best])[0].chunk.text.split(), question


def test_the_same_chunks_every_time(settings: Settings) -> None:
    one, again, other = (Topics.of(TEXTS, load_embedder(settings), seed) for seed in (0, 0, 1))
    assert list(map(itemgetter(0, 2), one.chunks(0, 5))) == list(map(itemgetter(0, 2), again.chunks(0, 5)))
    assert [text for text, _, _ in one.chunks(0, 5)] != [text for text, _, _ in one.chunks(5, 5)]
    assert one.questions(5) != other.questions(5)
    texts, vectors, sentences = zip(*one.chunks(0, 5), strict=True)
    assert [len(text.split()) for text in texts] == [search_data.WORDS] * 5
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for vector, packed in zip(vectors, sentences, strict=True):
        around = unpack(packed, len(vector)) @ vector
        assert len(around) == search_data.SENTENCES and (around > 0.6).all()


def test_words_are_those_of_the_texts_and_compounds_of_them() -> None:
    words = vocabulary(["The cats cats purr, dogs bark"], 7)
    assert words == ["cats", "the", "purr", "dogs", "bark", "catscats", "purrcats"]
    assert len(vocabulary(["a b"], 100)) == 2


def test_a_prompt_longer_than_the_context_is_refused(settings: Settings) -> None:
    with pytest.raises(ConfigError, match="--tokens 3000: the model's context has 2048"):
        search.run(settings, TEXTS, SearchBenchOptions(10, 1, 3000, 1, 60, 0), None)
