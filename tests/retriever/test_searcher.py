from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from retriever import FloatArray, IntArray, RetrieverError, Vectors
from retriever import searcher as searcher_module
from retriever.keyword_index import KeywordIndex
from retriever.memory_source import MemorySource
from retriever.searcher import LEAST_READ, MOST_DIVERSE, MOST_READ, Searcher, SearchOptions, fuse
from retriever.sentences import pack
from retriever.vector_index import VectorIndex

# Each axis is a topic; a text says more words than its vector knows, and the other way round.
CHUNKS = [
    ("rye bread needs sourdough", [1.0, 0.1, 0.0]),
    ("rye bread needs sourdough too", [1.0, 0.11, 0.0]),
    ("how to bake loaves at home", [0.9, 0.0, 0.3]),
    ("the lighthouse keeper eats rye", [0.0, 1.0, 0.1]),
    ("storms at sea", [0.0, 0.9, 0.4]),
    ("meerkats dig", [0.0, 0.1, 1.0]),
]
BREAD, SEA = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]


def unit(values: Sequence[float]) -> Vectors:
    vector = np.array(values, dtype=np.float32)
    return vector / np.linalg.norm(vector)


class LongestFirst:
    """A reranker that is easy to foresee."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def score(self, question: str, texts: Sequence[str]) -> FloatArray:
        self.read = list(texts)
        return np.array([float(len(text)) for text in texts])


@pytest.fixture
def source() -> MemorySource:
    source = MemorySource(3)
    documents = [{"document": f"{number // 3}.md"} for number in range(len(CHUNKS))]
    source.add([text for text, _ in CHUNKS], np.stack([unit(vector) for _, vector in CHUNKS]), documents)
    return source


def searcher_of(source: MemorySource, reranker: LongestFirst | None = None, folder: Path | None = None) -> Searcher:
    vectors = VectorIndex(3, "model", folder)
    keywords = KeywordIndex(folder)
    return Searcher(source, vectors, keywords, lambda question: unit(BREAD), reranker, source.texts)


def ids(searcher: Searcher, question: str, k: int, options: SearchOptions, **settings: object) -> list[int]:
    return [hit.id for hit in searcher.search(question, k, options=options, **settings)]  # type: ignore[arg-type]  # any of its settings


def test_by_vectors(source: MemorySource) -> None:
    hits = searcher_of(source).search("anything", 3, options=SearchOptions("vector"))
    assert [hit.id for hit in hits] == [1, 2, 3]
    assert hits[0].score == pytest.approx(float(unit(CHUNKS[0][1]) @ unit(BREAD)))
    assert hits[0].scores == {"vector": hits[0].score}


def test_by_words(source: MemorySource) -> None:
    hits = searcher_of(source).search("Rye?", 5, options=SearchOptions("keyword"))
    assert [hit.id for hit in hits] == [1, 2, 4]
    assert all(hit.scores == {"keyword": hit.score} and hit.score > 0 for hit in hits)


def test_by_both(source: MemorySource) -> None:
    searcher, question = searcher_of(source), "rye at the lighthouse"
    hits = searcher.search(question, 6)
    found, covered = searcher.keywords.covered(question, 6, None, np.arange(1, 7))
    assert found.tolist() == [1, 2, 3, 4, 5, 6]
    meant = np.stack([unit(vector) for _, vector in CHUNKS]) @ unit(BREAD)
    assert {hit.id: hit.score for hit in hits} == pytest.approx(
        dict(zip(found.tolist(), (meant + covered) / 2, strict=True))
    )
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert {tuple(hit.scores) for hit in hits} == {("vector", "keyword"), ("vector",)}


def test_by_the_ranks_of_both(source: MemorySource) -> None:
    searcher = searcher_of(source)
    hits = searcher.search("rye at the lighthouse", 6, options=SearchOptions(fusion="rank"))
    by_vector = ids(searcher, "", 6, SearchOptions("vector"))
    by_word = ids(searcher, "rye at the lighthouse", 6, SearchOptions("keyword"))
    assert {hit.id: hit.score for hit in hits} == pytest.approx(fuse([by_vector, by_word]))


def test_what_no_chunk_says_makes_the_words_weigh_less(source: MemorySource) -> None:
    keywords = searcher_of(source).keywords
    keywords.catch_up(source)
    everything = np.arange(1, 7)
    _, known = keywords.covered("lighthouse keeper", 6, None, everything)
    _, half = keywords.covered("lighthouse zebra", 6, None, everything)
    _, none = keywords.covered("zebra", 6, None, everything)
    assert known[3] > half[3] > 0 == none.max()
    assert known.max() <= 1


PLAIN = np.stack([unit([0.0, 1.0, 0.0]), unit([0.5, 1.0, 0.0])])
SENTENCES = [pack(np.stack([unit([0.0, 0.0, 1.0]), unit(BREAD)])), pack(unit([0.0, 0.0, 1.0])[np.newaxis])]


def test_the_nearest_sentence_counts_half() -> None:
    source = MemorySource(3)
    source.add(["a long chunk with bread in it", "a chunk"], PLAIN, sentences=SENTENCES)
    by_id = {hit.id: hit for hit in searcher_of(source).search("", 2, options=SearchOptions("vector"))}
    assert by_id[1].score == pytest.approx(0.5, abs=0.01)
    assert by_id[1].scores["sentence"] == pytest.approx(1, abs=0.01)
    assert by_id[2].score == pytest.approx(float(PLAIN[1] @ unit(BREAD)) / 2, abs=0.01)


def test_chunks_without_sentences_do_not_fall_behind_those_that_have_them() -> None:
    source = MemorySource(3)
    source.add(["a long chunk with bread in it", "a chunk of an older catalog"], PLAIN, sentences=[SENTENCES[0], None])
    hits = searcher_of(source).search("", 2, options=SearchOptions("vector"))
    assert [hit.id for hit in hits] == [2, 1]
    assert [hit.score for hit in hits] == pytest.approx([float(PLAIN[1] @ unit(BREAD)), 0])
    assert all("sentence" not in hit.scores for hit in hits)


def test_a_deep_search_reads_the_sentences_of_the_likeliest_alone() -> None:
    asked: list[int] = []

    class Watched(MemorySource):
        def sentences(self, ids: IntArray) -> list[bytes | None]:
            asked.extend(ids.tolist())
            return super().sentences(ids)

    source, count = Watched(3), 3 * MOST_READ
    vectors = np.stack([unit([1.0, place / count, 0.0]) for place in range(count)])
    source.add(["the same text"] * count, vectors, sentences=[pack(vector[np.newaxis]) for vector in vectors])
    hits = searcher_of(source).search("", count, options=SearchOptions("vector"))
    assert [hit.id for hit in hits] == list(range(1, count + 1))
    assert sorted(asked) == list(range(1, MOST_READ + 1))
    asked.clear()
    searcher_of(source).search("", 5, options=SearchOptions("vector", depth=count))
    assert sorted(asked) == list(range(1, LEAST_READ + 1))


def test_the_share_of_the_vectors(source: MemorySource) -> None:
    searcher = searcher_of(source)
    assert ids(searcher, "lighthouse", 1, SearchOptions(vector_share=0.0)) == [4]
    assert ids(searcher, "lighthouse", 1, SearchOptions(vector_share=1.0)) == [1]


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
def test_filters_hold_in_every_mode(source: MemorySource, mode: str) -> None:
    searcher, options = searcher_of(source), SearchOptions(mode)
    assert set(ids(searcher, "rye", 6, options, where={"document": ["1.md"]})) <= {4, 5, 6}
    assert 4 in ids(searcher, "rye", 3, options, where={"document": ["1.md"]})
    with pytest.raises(RetrieverError, match=r"no chunk has 'document' '9\.md'"):
        ids(searcher, "rye", 6, options, where={"document": ["9.md"]})
    assert ids(searcher, "rye", 6, options, where={"document": ["1.md"]}, allowed=np.array([1, 4])) == [4]
    assert len(ids(searcher, "rye", 6, options, where={})) >= 3


def test_a_vector_that_is_given_is_used(source: MemorySource) -> None:
    searcher = searcher_of(source)
    assert ids(searcher, "", 1, SearchOptions("vector"), vector=unit(SEA)) == [4]


def test_it_follows_its_source(source: MemorySource) -> None:
    searcher = searcher_of(source)
    source.retire([1])
    source.add(["rye again"], unit([1.0, 0.0, 0.01])[None])
    assert ids(searcher, "rye", 2, SearchOptions("vector")) == [7, 2]
    assert set(ids(searcher, "rye", 6, SearchOptions("keyword"))) == {2, 4, 7}


def test_mmr_looks_for_something_new(source: MemorySource) -> None:
    searcher = searcher_of(source)
    assert ids(searcher, "rye bread sourdough", 2, SearchOptions()) == [1, 2]
    first, second = ids(searcher, "rye bread sourdough", 2, SearchOptions(mmr=0.4))
    assert (first, second) != (1, 2)
    assert first == 1
    assert ids(searcher, "rye bread sourdough", 2, SearchOptions(mmr=1.0)) == [1, 2]
    assert ids(searcher, "zebra", 2, SearchOptions("keyword", mmr=0.5)) == []


def test_the_reranker_has_the_last_word(source: MemorySource) -> None:
    reranker = LongestFirst()
    hits = searcher_of(source, reranker).search("rye", 2, options=SearchOptions(rerank_depth=4))
    assert len(reranker.read) == 4
    assert [hit.score for hit in hits] == sorted((float(len(text)) for text in reranker.read), reverse=True)[:2]
    assert all(hit.scores["reranker"] == hit.score for hit in hits)


def test_the_reranker_reads_at_least_what_is_asked_for(source: MemorySource) -> None:
    reranker = LongestFirst()
    assert len(searcher_of(source, reranker).search("rye", 5, options=SearchOptions(rerank_depth=1))) == 5


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
def test_the_reranker_reads_as_deep_as_it_should(mode: str) -> None:
    """Also below what is fused without one, and no deeper than there are chunks."""
    source, vectors = MemorySource(3), [unit([1.0, number / 150, 0.1]) for number in range(150)]
    source.add([f"rye {number}" for number in range(150)], np.stack(vectors))
    for depth, read in ((120, 120), (10**12, 150)):
        searcher_of(source, reranker := LongestFirst()).search(
            "rye", 2, options=SearchOptions(mode, rerank_depth=depth)
        )
        assert len(reranker.read) == read


def test_the_reranker_reads_copies_once_and_its_time_is_told(source: MemorySource) -> None:
    source.add(["rye bread needs sourdough"] * 3, np.stack([unit(BREAD)] * 3))
    reranker, seconds = LongestFirst(), {"rerank": 1.0}
    hits = searcher_of(source, reranker).search("rye bread", 5, seconds=seconds)
    assert sorted(reranker.read) == sorted(text for text, _ in CHUNKS)
    assert len(hits) == 5
    assert len({hit.score for hit in hits if hit.id in (1, 7, 8, 9)}) <= 1
    assert seconds["rerank"] > 1
    without: dict[str, float] = {}
    searcher_of(source).search("rye bread", 5, seconds=without)
    assert without == {}


def test_an_empty_collection_and_empty_questions() -> None:
    empty = searcher_of(MemorySource(3))
    for mode in ("vector", "keyword", "hybrid"):
        assert ids(empty, "rye", 3, SearchOptions(mode)) == []
    assert empty.search("", 3, options=SearchOptions(mmr=0.5)) == []


def test_both_indexes_are_saved_and_read(source: MemorySource, tmp_path: Path) -> None:
    searcher = searcher_of(source, folder=tmp_path)
    searcher.catch_up()
    searcher.save()
    assert {path.suffix for path in tmp_path.iterdir()} >= {".faiss", ".bm25", ".json"}
    again = searcher_of(source, folder=tmp_path)
    assert again.search("rye bread", 4) == searcher.search("rye bread", 4)
    again.rebuild()
    assert again.search("rye bread", 4) == searcher.search("rye bread", 4)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "magic"}, "unknown search mode 'magic': choose from vector, keyword, hybrid"),
        ({"mmr": 1.5}, "mmr=1.5"),
        ({"vector_share": -0.1}, "vector_share=-0.1"),
        ({"depth": 0}, "give at least 1"),
        ({"rerank_depth": 0}, "give at least 1"),
    ],
)
def test_wrong_options_are_told(options: dict[str, object], told: str) -> None:
    with pytest.raises(RetrieverError, match=told):
        SearchOptions(**options)  # type: ignore[arg-type]  # that is what is tested


def test_what_cannot_work_is_told(source: MemorySource) -> None:
    with pytest.raises(RetrieverError, match="ask for at least 1"):
        searcher_of(source).search("rye", 0)
    with pytest.raises(RetrieverError, match="give `texts` too"):
        Searcher(source, VectorIndex(3, "m"), KeywordIndex(), lambda question: unit(BREAD), LongestFirst())


@pytest.mark.parametrize("copies", [2, 2 * MOST_DIVERSE + 100])
def test_any_number_of_copies_leaves_room_for_something_new(copies: int) -> None:
    """Anybody may put so many into a collection that the best hits are nothing else."""
    source, others = MemorySource(3), [unit([1.0, 0.4, place / 10]) for place in range(5)]
    source.add(["planted"] * copies, np.stack([unit([1.0, 0.1, 0.0])] * copies))
    new = source.add(["something new"] * len(others), np.stack(others))
    searcher = searcher_of(source)
    hits = searcher.search("", 6, options=SearchOptions("vector", depth=2 * copies, mmr=0.5))
    assert {hit.id for hit in hits} == {1, *new.tolist()}
    every = ids(searcher, "", copies + 5, SearchOptions("vector", mmr=0.5))
    assert every[6:] == list(range(2, copies + 1)), "copies follow, none is lost"
    assert ids(searcher, "", 2, SearchOptions("vector", mmr=1.0)) == [1, 2], "where relevance alone counts they stay"


def test_novelty_is_looked_for_among_a_bounded_number_of_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that is deep for copies would else compare thousands with thousands."""
    compared: list[tuple[int, int]] = []
    real = searcher_module.diversify

    def counted(relevance: Sequence[float], vectors: Vectors, k: int, share: float) -> IntArray:
        compared.append((len(relevance), k))
        return real(relevance, vectors, k, share)

    monkeypatch.setattr(searcher_module, "diversify", counted)
    count = 3 * MOST_DIVERSE
    source = MemorySource(3)
    source.add(["the same text"] * count, np.stack([unit([1.0, place / count, 0.0]) for place in range(count)]))
    hits = searcher_of(source).search("", count, options=SearchOptions("vector", mmr=0.5))
    assert len(hits) == len({hit.id for hit in hits}) == count
    assert compared == [(2 * MOST_DIVERSE, MOST_DIVERSE)]
    assert [hit.id for hit in hits[MOST_DIVERSE:]] == sorted(hit.id for hit in hits[MOST_DIVERSE:])
