"""What a question asks for, over the sample documents: a budget, neighbours, something new, a cross-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import RagPipeline, Settings
from app.answering import Citation, Retrieved
from app.answering.stream import CUT_OFF
from app.errors import NotFound
from app.library.catalog.chunks import Chunks
from ragcache.errors import ConfigError, ModelError
from retriever import Hit
from retriever.searcher import Searcher
from retriever.source import Position
from tests.app.filling import FOLDER, put
from tests.retriever.test_reranker import write_model

QUESTION = "Who designed the lighthouse?"


def tokens(pipeline: RagPipeline, found: list[Retrieved]) -> int:
    return sum(len(pipeline.models.template.chunk(one.text)) for one in found)


def test_a_budget_holds_in_the_models_own_tokens(pipeline: RagPipeline) -> None:
    ranked = pipeline.retrieve(QUESTION, top_k=12)
    budget = tokens(pipeline, ranked[:3]) + 1
    found = pipeline.retrieve(QUESTION, top_tokens=budget)
    assert found[:3] == ranked[:3]
    assert tokens(pipeline, found) <= budget
    assert len(pipeline.retrieve(QUESTION, top_tokens=1)) == 1
    assert pipeline.retrieve(QUESTION, top_k=2, top_tokens=10_000) == ranked[:2]


def test_what_the_budget_left_out_is_told(pipeline: RagPipeline) -> None:
    best = pipeline.retrieve(QUESTION, top_k=1)
    budget = tokens(pipeline, best) + 1
    answer = pipeline.ask(QUESTION, top_k=4, top_tokens=budget)
    assert [one.chunk_id for one in answer.citations] == [best[0].chunk_id]
    told = f"3 of 4 chunks left out: the budget of {budget} tokens was full"
    assert answer.notes == (told, CUT_OFF)
    assert answer.report.incidents[:1] == [told]


def test_neighbours_stand_behind_the_hits_and_beside_them_in_the_prompt(pipeline: RagPipeline) -> None:
    hits = pipeline.retrieve(QUESTION, top_k=2)
    found = pipeline.retrieve(QUESTION, top_k=2, neighbours=1)
    assert found[:2] == hits
    assert {one.reason for one in hits} == {"hit"}
    assert {one.reason for one in found[2:]} == {"neighbour"}
    taken = {(one.document_id, one.ordinal) for one in hits}
    beside = {(document, ordinal + side) for document, ordinal in taken for side in (-1, 1) if ordinal + side >= 0}
    assert {(one.document_id, one.ordinal) for one in found[2:]} == beside - taken
    assert all(one.score in {hit.score for hit in hits} for one in found)
    answer = pipeline.ask(QUESTION, top_k=2, neighbours=1)
    assert {one.chunk_id: one.reason for one in answer.citations} == {one.chunk_id: one.reason for one in found}
    assert all(one.quote for one in answer.citations)
    assert Citation.from_dict(answer.citations[0].to_dict()) == answer.citations[0]


def test_neighbours_keep_the_budget_and_the_filter(pipeline: RagPipeline) -> None:
    hits = pipeline.retrieve(QUESTION, top_k=2)
    budget = tokens(pipeline, hits) + 150
    found = pipeline.retrieve(QUESTION, top_k=2, top_tokens=budget, neighbours=2)
    assert len(found) > 2
    assert tokens(pipeline, found) <= budget
    where = {"source": [f"{FOLDER}/bakery.md"]}
    assert {one.title for one in pipeline.retrieve(QUESTION, neighbours=3, where=where)} == {"bakery.md"}


def test_something_new_by_setting_and_by_question(sampled: Settings, pipeline: RagPipeline) -> None:
    plain = [one.chunk_id for one in pipeline.retrieve(QUESTION)]
    new = [one.chunk_id for one in pipeline.retrieve(QUESTION, mmr=0.2)]
    assert (new[0], set(new) == set(plain)) == (plain[0], False)
    with RagPipeline(sampled.model_copy(update={"mmr": 0.2})) as other:
        assert [one.chunk_id for one in other.retrieve(QUESTION)] == new
        assert [one.chunk_id for one in other.retrieve(QUESTION, mmr=1.0)] == plain
    with pytest.raises(ConfigError, match="mmr=2: give a number from 0 to 1"):
        pipeline.retrieve(QUESTION, mmr=2)


def test_a_budget_and_a_number_without_end_cost_what_is_there(
    pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = pipeline.library.catalog.collections.get("default")
    live = pipeline.library.catalog.source(collection).position().live
    searcher = pipeline.library.searcher(collection)
    depths = list[int]()

    def search(self: Searcher, question: str, k: int, **options: Any) -> list[Hit]:
        depths.append(k)
        return [Hit(one, 1.0, {}) for one in searcher.source.live_ids({}).tolist()[:k]]

    monkeypatch.setattr(Searcher, "search", search)
    for asked in ({"top_tokens": 10**12}, {"top_k": 10**30}):
        found = pipeline.search(QUESTION, **asked)  # type: ignore[arg-type]  # all of these are numbers
        assert (len(found.chunks), found.notes) == (live, ())
    assert depths == [live, live]


def test_many_copies_do_not_make_a_search_endless(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a collection of a billion chunks that are copies of two."""
    source = pipeline.library.catalog.source(pipeline.library.catalog.collections.get("default"))
    one, other, *_ = source.live_ids({}).tolist()
    rows, depths = {row.chunk.id: row for row in pipeline.library.catalog.chunks.found([one, other])}, list[int]()

    def search(self: Searcher, question: str, k: int, **options: Any) -> list[Hit]:
        depths.append(k)
        return [Hit(place, 1.0, {}) for place in range(k)]

    monkeypatch.setattr(Searcher, "search", search)
    monkeypatch.setattr(type(source), "position", lambda self: Position(10**9, 0, 10**9))
    monkeypatch.setattr(Chunks, "found", lambda self, ids: [rows[(one, other)[number % 2]] for number in ids])
    found = pipeline.search(QUESTION, top_k=5)
    assert depths == [10, 80, 640, 4096]
    assert {chunk.chunk_id for chunk in found.chunks} == {one, other}
    (note,) = found.notes
    assert "only the best 4,096 hits were looked at" in note


@pytest.mark.slow
def test_a_text_in_another_dress_counts_once(sampled: Settings, tmp_path: Path) -> None:
    text = "The lighthouse was designed by Margaret Aldous, and its keepers write down every ship that passes at night."
    with RagPipeline(sampled.model_copy(update={"data_dir": tmp_path})) as own:
        put(
            own,
            {
                "/a.md": text,
                "/b.md": text.replace(", and", ",\nand"),
                "/c.md": f"{text} 1846",
                "/d.md": "Bread is baked at night.",
            },
        )
        found = own.retrieve("Who designed the lighthouse that ships pass at night?", top_k=4)
    sources = [one.source for one in found]
    assert len(sources) == 3
    assert {"/c.md", "/d.md"} < set(sources)


@pytest.mark.slow
def test_a_cross_encoder_reads_what_is_asked_for_and_tells_its_time(sampled: Settings, tmp_path: Path) -> None:
    changes = {"reranker": str(write_model(tmp_path / "model")), "rerank_depth": 7}
    with RagPipeline(sampled.model_copy(update=changes)) as own:
        seconds = own.ask(QUESTION, top_k=2).report.seconds
        assert min(seconds["rerank"], seconds["retrieve"]) > 0
        read: list[int] = []
        reranker = own.models.reranker
        assert reranker is not None
        score = reranker.score
        reranker.score = lambda question, texts: (read.append(len(texts)), score(question, texts))[1]  # type: ignore[method-assign]  # to count
        own.retrieve(QUESTION, top_k=2)
        own.retrieve(QUESTION, top_k=4)
        assert read == [7, 8]
        with pytest.raises(NotFound):
            own.retrieve(QUESTION, where={"source": ["/nope.md"]})
    told = pytest.raises(ModelError, match=f"{tmp_path} is not a complete model")
    with RagPipeline(sampled.model_copy(update={"reranker": str(tmp_path)})) as broken, told:
        broken.ask(QUESTION)


def test_the_pipeline_without_one_tells_no_such_time(pipeline: RagPipeline) -> None:
    assert "rerank" not in pipeline.ask(QUESTION, top_k=1).report.seconds
