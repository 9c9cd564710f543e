"""From a question to an answer, over the sample documents and the small model."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from app.answering.answerer import NOTHING_FOUND
from app.answering.stream import CUT_OFF
from app.errors import CatalogError
from app.settings import PromptOrder
from ragcache.errors import ConfigError, PromptError
from ragcache.sampling import Sampling
from tests.app.filling import FOLDER, put

QUESTION = "Who designed the lighthouse?"
ORDERS: tuple[PromptOrder, ...] = ("collection", "best")
ROOT = Path(__file__).parents[3]


def test_the_import_brings_no_model_library() -> None:
    code = "import sys; from app import RagPipeline, Settings; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (ran.stdout, ran.stderr) == ("False\n", "")


def test_an_answer_cites_its_chunks_at_their_exact_places(pipeline: RagPipeline) -> None:
    answer = pipeline.ask(QUESTION)
    assert [one.number for one in answer.citations] == [1, 2, 3, 4, 5]
    assert answer.report.answer_tokens == 12
    assert (answer.notes, answer.report.incidents) == ((CUT_OFF,), [])
    layouts = pipeline.library.catalog.documents.layout
    for one in answer.citations:
        assert isinstance(one.document_id, int)
        text = layouts(one.document_id).text
        assert text[one.start : one.end] == one.text
        assert one.quote is not None
        assert text[one.quote.start : one.quote.end] == one.quote.text
        assert one.start <= one.quote.start < one.quote.end <= one.end
    assert any("designed by the engineer Margaret Aldous" in one.text for one in answer.citations)


@pytest.mark.slow
def test_every_chunk_is_read_from_the_cache(sampled: Settings) -> None:
    with RagPipeline(sampled) as again:  # with nothing in RAM, as after a restart
        report = again.ask(QUESTION).report
    assert [chunk.tier for chunk in report.chunks] == ["disk"] * 5
    assert report.system_tier == "disk"


def test_the_chunks_stand_in_document_order(pipeline: RagPipeline) -> None:
    cited = pipeline.ask("Where do the bread and the lighthouse come from?").citations
    assert len({one.document_id for one in cited}) > 1
    places = [(one.document_id, one.ordinal) for one in cited]
    assert places == sorted(places)


def test_what_is_retrieved_comes_best_first(pipeline: RagPipeline) -> None:
    found = pipeline.retrieve(QUESTION, top_k=3)
    assert len(found) == 3
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert any("Margaret Aldous" in one.text for one in found)
    assert {one.chunk_id for one in found} == {one.chunk_id for one in pipeline.ask(QUESTION, top_k=3).citations}


@pytest.mark.slow
def test_options_win_over_settings(pipeline: RagPipeline) -> None:
    answer = pipeline.ask(QUESTION, top_k=2, max_tokens=3, linker="full", quotes=False)
    assert len(answer.citations) == 2
    assert (answer.report.answer_tokens, answer.report.linker) == (3, "full")
    assert all(one.quote is None for one in answer.citations)
    first, second = (pipeline.ask(QUESTION, sampling=Sampling(1.0, seed=seed)).text for seed in (1, 2))
    assert first != second


def test_a_filter_chooses_documents(pipeline: RagPipeline) -> None:
    found = pipeline.retrieve("What do they eat?", where={"source": [f"{FOLDER}/bakery.md"]})
    assert {one.title for one in found} == {"bakery.md"}


def test_a_filter_that_matches_nothing_is_told(pipeline: RagPipeline) -> None:
    with pytest.raises(CatalogError, match=f"no document 'bakery.md' in collection 'default'; there is: {FOLDER}/"):
        pipeline.ask(QUESTION, where={"document": ["bakery.md"]})
    with pytest.raises(CatalogError, match="no document of the kind 'prose'; there are: markdown"):
        pipeline.retrieve(QUESTION, where={"kind": ["prose"]})
    sources = {"document": [f"{FOLDER}/bakery.md"], "source": [f"{FOLDER}/meerkats.md"]}
    with pytest.raises(CatalogError, match=r"no chunk matches all of the filter {'document'"):
        pipeline.retrieve(QUESTION, where=sources)


def test_with_no_hit_it_answers_and_says_so(sampled: Settings) -> None:
    with RagPipeline(sampled.model_copy(update={"retrieval": "keyword"})) as pipeline:
        answer = pipeline.ask("Xyzzy?", where={"source": [f"{FOLDER}/bakery.md"]})
    assert (answer.citations, answer.notes) == ((), (NOTHING_FOUND, CUT_OFF))
    assert answer.report.incidents == [NOTHING_FOUND]
    assert answer.report.answer_tokens == 12


def test_the_report_tells_what_retrieval_took(pipeline: RagPipeline) -> None:
    report = pipeline.ask(QUESTION).report
    assert 0 < report.seconds["retrieve"] < report.ttft_s
    assert "condense" not in report.seconds


@pytest.mark.slow
def test_copies_of_a_text_count_once(sampled: Settings, tmp_path: Path) -> None:
    settings = sampled.model_copy(update={"data_dir": tmp_path})
    with RagPipeline(settings) as own:
        text = "# Notes\n\nThe lighthouse was designed by Margaret Aldous."
        copies = {f"/copies/{number}.md": text for number in range(9)}
        put(own, copies | {"/other.md": "Bread is baked at night."})
        copy, other = own.retrieve(QUESTION, top_k=2)
    # Where a vector stands among others can change the last bit of its score: any copy may be the first.
    assert (copy.source in copies, other.source) == (True, "/other.md")


def test_a_prompt_over_the_context_says_what_it_left_out(pipeline: RagPipeline) -> None:
    answer = pipeline.ask(QUESTION, top_k=30, max_tokens=16)  # the small model has a context of 2,048 tokens
    assert 5 < len(answer.citations) < 30
    note, _ = answer.notes
    assert note.startswith("the lowest-ranked ")
    assert note in answer.report.incidents
    kept = [one.chunk_id for one in pipeline.retrieve(QUESTION, top_k=30)][: len(answer.citations)]
    assert {one.chunk_id for one in answer.citations} == set(kept)


@pytest.mark.parametrize("question", ["", " \n"])
def test_an_empty_question_is_refused(pipeline: RagPipeline, question: str) -> None:
    for ask in (pipeline.ask, pipeline.retrieve, pipeline.conversation().ask):
        with pytest.raises(PromptError, match="question is empty"):
            ask(question)


def test_an_endless_question_is_refused(pipeline: RagPipeline) -> None:
    with pytest.raises(PromptError, match="the question is too long"):
        pipeline.ask("why " * 3000)


def test_wrong_options_are_refused(pipeline: RagPipeline) -> None:
    with pytest.raises(ConfigError, match="top_k=0: ask for at least 1"):
        pipeline.ask(QUESTION, top_k=0)
    with pytest.raises(TypeError, match="max_token"):
        pipeline.ask(QUESTION, max_token=3)  # type: ignore[call-arg]  # a typing error is what is tested
    with pytest.raises(ConfigError, match="unknown linker"):
        pipeline.ask(QUESTION, linker="nope")


@pytest.mark.slow
def test_a_collection_that_is_not_there_or_empty_is_told_with_the_command(sampled: Settings, tmp_path: Path) -> None:
    with RagPipeline(sampled.model_copy(update={"data_dir": tmp_path})) as own:
        with pytest.raises(
            CatalogError, match=r"no collection 'my books'; .* none yet. `ragcache ingest PATH -c 'my b"
        ):
            own.ask(QUESTION, collection="my books")
        own.library.collection_or_new("books")
        with pytest.raises(CatalogError, match=r"collection 'books' is empty: `ragcache ingest PATH -c books` puts"):
            own.conversation(collection="books")
        with pytest.raises(CatalogError, match="there are: books"):
            own.retrieve(QUESTION)


@pytest.mark.slow
def test_a_collection_that_was_emptied_meanwhile_is_told_too(sampled: Settings, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The ferry leaves at noon.")
    with RagPipeline(sampled.model_copy(update={"data_dir": tmp_path / "data"})) as own:
        own.ingest(tmp_path / "a.txt", "books", kv="on-use")
        (found,) = own.retrieve(QUESTION, collection="books")
        catalog = own.library.catalog
        assert isinstance(found.document_id, int)
        catalog.documents.delete(catalog.collections.get("books"), [found.document_id])
        with pytest.raises(CatalogError, match="collection 'books' is empty"):
            own.retrieve(QUESTION, collection="books")


@pytest.mark.slow
def test_threads_share_a_pipeline(sampled: Settings) -> None:
    questions = [QUESTION, "What do meerkats eat?", "When does the shift begin?"] * 2
    with RagPipeline(sampled) as shared, ThreadPoolExecutor(3) as pool:

        def ask(question: str) -> str:
            return shared.ask(question, top_k=2, max_tokens=6, quotes=False).text

        for question in questions[:3]:  # the first answers store what they lacked, which the next ones use
            ask(question)
        shared.settle()
        alone = [ask(question) for question in questions[:3]]
        assert list(pool.map(ask, questions)) == alone * 2


def test_the_async_methods_do_the_same(pipeline: RagPipeline) -> None:
    async def ask() -> tuple[str, list[str], int]:
        stream = await pipeline.astream(QUESTION)
        pieces = [piece async for piece in stream]
        found = await pipeline.aretrieve(QUESTION)
        return (await pipeline.aask(QUESTION)).text, pieces, len(found)

    pipeline.ask(QUESTION)
    pipeline.settle()
    text, pieces, found = asyncio.run(ask())
    assert text == pipeline.ask(QUESTION).text == "".join(pieces)
    assert found == 5
    assert threading.active_count() < 20


def test_an_answer_is_json(pipeline: RagPipeline) -> None:
    answer = pipeline.ask(QUESTION)
    told = json.loads(json.dumps(answer.to_dict()))
    assert set(told) == {"question", "answer", "citations", "report", "notes", "support"}
    assert told["answer"] == answer.text == str(answer)
    assert told["citations"][0]["source"] == answer.citations[0].source


def test_chunks_stand_best_first_where_that_is_asked_for(pipeline: RagPipeline) -> None:
    found = [one.chunk_id for one in pipeline.retrieve(QUESTION)]
    cited = {order: [one.chunk_id for one in pipeline.ask(QUESTION, prompt_order=order).citations] for order in ORDERS}
    assert cited["best"] == found
    assert sorted(cited["collection"]) == sorted(found)
    assert cited["collection"] != found


def test_chunks_stand_as_what_is_cached_fits_where_that_is_asked_for(pipeline: RagPipeline) -> None:
    found = pipeline.retrieve(QUESTION)
    answer = pipeline.ask(QUESTION, prompt_order="cached")
    plain = pipeline.ask(QUESTION, prompt_order="collection")
    assert sorted(one.chunk_id for one in answer.citations) == sorted(one.chunk_id for one in found)
    assert answer.report.seconds["order"] > 0
    assert "order" not in plain.report.seconds
    exact = [sum(chunk.tokens for chunk in one.report.chunks if chunk.exact) for one in (answer, plain)]
    assert exact[0] >= exact[1]


def test_a_conversation_that_goes_on_keeps_its_order(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    first = [one.chunk_id for one in conversation.ask(QUESTION, prompt_order="cached").citations]
    second = [one.chunk_id for one in conversation.ask("And who kept it?", prompt_order="cached").citations]
    again = [one for one in first if one in second]
    assert again, "it reads something again"
    assert second[: len(again)] == again
