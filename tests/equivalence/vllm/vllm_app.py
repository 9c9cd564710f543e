"""The application with `engine="vllm"`: what it answers, stores and tells is as with torch."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import RagPipeline, Settings
from app.answering import Answer
from app.answering.stream import CUT_OFF
from app.cachecare.warming import warm
from app.cli.doctor import check_engine
from app.models.loading import load_torch_model
from ragcache.errors import ConfigError, ModelError, PromptError
from ragcache.report import COMPUTED
from tests.app.filling import fill
from tests.tiny_folder import write_tiny_folder
from tests.vllm_state import drain, free_blocks

QUESTION, TOKENS = "Who designed the lighthouse?", 12
SAMPLES = ("bakery.md", "lighthouse.md")


@pytest.fixture(scope="module")
def settings(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("application")
    (folder / "model").mkdir()
    return Settings(
        engine="vllm", model=str(write_tiny_folder(folder / "model", smollm2, head_dim=32, hidden_size=128)),
        dtype="float32", vllm_kv_bytes=64_000_000, data_dir=folder / "data", cache_dir=folder / "cache", codec="raw",
        linker="query", max_tokens=TOKENS,
    )  # fmt: skip


@pytest.fixture(scope="module")
def pipeline(settings: Settings) -> Iterator[RagPipeline]:
    with RagPipeline(settings) as opened:
        fill(opened, SAMPLES)
        yield opened


@pytest.fixture(scope="module")
def theirs(settings: Settings, pipeline: RagPipeline) -> Iterator[RagPipeline]:
    """The torch engine over the same catalog and the same KV."""
    with RagPipeline(settings.model_copy(update={"engine": "torch"})) as opened:
        yield opened


def tiers(answer: Answer) -> set[str]:
    return {chunk.tier for chunk in answer.report.chunks}


def test_answers_are_those_of_the_torch_engine(pipeline: RagPipeline, theirs: RagPipeline) -> None:
    theirs.ask(QUESTION)  # what it lacks is captured behind it, for both
    theirs.settle()
    for linker in ("query", "full"):
        ours, expected = pipeline.ask(QUESTION, linker=linker), theirs.ask(QUESTION, linker=linker)
        assert ours.text == expected.text
        assert [one.place for one in ours.citations] == [one.place for one in expected.citations]
        assert ours.report.part == pytest.approx(expected.report.part)
    assert tiers(pipeline.ask(QUESTION)) & {"ram", "disk"}


def test_a_report_tells_all_that_the_question_waited_for(pipeline: RagPipeline) -> None:
    report = pipeline.ask(QUESTION).report
    assert {"retrieve", "place", "repair"} <= set(report.seconds)
    assert report.ttft_s > report.seconds["retrieve"] > 0
    assert report.answer_tokens > 0


def test_notes_stay_in_the_report(pipeline: RagPipeline) -> None:
    room = pipeline.models.language.engine.spec.max_tokens
    answer = pipeline.ask(QUESTION, top_k=20, max_tokens=room - 600)
    left_out = set(answer.notes) - {CUT_OFF}
    assert left_out and left_out <= set(answer.report.incidents)


def test_a_conversation_understands_follow_ups(pipeline: RagPipeline, theirs: RagPipeline) -> None:
    def told(asked: RagPipeline) -> list[str]:
        conversation = asked.conversation()
        # Its repairs do not depend on the question: in vLLM the second turn finds what was repaired for the first one.
        options = {"linker": "first_tokens"}
        texts = [conversation.ask(question, **options).text for question in (QUESTION, "How tall is it?")]
        asked.settle()
        return texts

    told(pipeline), told(theirs)  # after these, both have what they lacked
    engine: Any = pipeline.models.language.engine
    drain(engine)
    engine.forget_prefixes()  # of the same question, answered in full by a test before this one
    assert told(pipeline) == told(theirs)


def test_many_questions_at_once(pipeline: RagPipeline) -> None:
    questions = [QUESTION, "What is rye bread made of?", "When was it lit?", "Who bakes?"]
    for _ in range(2):  # after the first one, the cache knows which chunks lead a prompt
        alone = [pipeline.ask(question).text for question in questions]
        pipeline.settle()

    async def together() -> list[Answer]:
        return list(await asyncio.gather(*(pipeline.aask(question) for question in questions)))

    assert [answer.text for answer in asyncio.run(together())] == alone


def test_streams_that_nobody_reads_to_the_end_are_aborted(pipeline: RagPipeline) -> None:
    engine = pipeline.models.language.engine
    drain(engine)
    before = free_blocks(engine)
    unread, begun = (pipeline.stream(QUESTION, max_tokens=900) for _ in range(2))
    next(begun)
    for stream in (unread, begun):
        stream.close()
        assert "stopped before its end" in stream.answer.notes
    assert begun.report.chunks, "what was linked is told all the same"
    assert begun.report.reused > 0
    drain(engine)
    assert free_blocks(engine) == before


def test_a_stream_that_nobody_holds_is_aborted_without_waiting(
    pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python ends it on any thread, whatever locks that holds; one that the engine needs would never come free."""
    engine: Any = pipeline.models.language.engine
    drain(engine)
    before = free_blocks(engine)
    stream = pipeline.stream(QUESTION, max_tokens=900)
    next(stream)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "abort", None)
        del stream
        gc.collect()
    closed = pipeline.stream(QUESTION, max_tokens=900)
    next(closed)
    engine._command(closed.close).result(timeout=60)  # on the engine's thread, which Python may choose too
    drain(engine)
    assert free_blocks(engine) == before


def test_a_stream_of_which_nobody_read_a_word_is_aborted(pipeline: RagPipeline) -> None:
    """Python runs no `finally` of a generator that was never started."""
    engine: Any = pipeline.models.language.engine
    stream = pipeline.stream(QUESTION, max_tokens=900)
    assert engine._ask(lambda: len(engine._deliver)) == 1
    del stream
    gc.collect()
    assert engine._ask(lambda: len(engine._deliver)) == 0
    pipeline.settle()


def test_stopping_ends_the_wait_for_a_token(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when it comes: a prompt behind many others may wait long."""
    engine: Any = pipeline.models.language.engine
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_hand_out", lambda name, output: None)
        stream = pipeline.stream(QUESTION, max_tokens=900)
        reading = threading.Thread(target=lambda: list(stream), daemon=True)
        reading.start()
        stream.stop()
        reading.join(60)
    assert not reading.is_alive()
    assert "stopped before its end" in stream.answer.notes
    assert engine._ask(lambda: len(engine._deliver)) == 0


def test_a_report_is_whole_where_vllm_was_ahead_of_its_reader(pipeline: RagPipeline) -> None:
    engine: Any = pipeline.models.language.engine
    pipeline.ask(QUESTION)
    pipeline.settle()
    for read in (1, 4):
        stream = pipeline.stream(QUESTION, max_tokens=4)
        for _ in range(read):
            next(stream, None)
        drain(engine)
        stream.close()
        assert stream.answer.report.chunks
        assert stream.answer.report.reused > 0


async def _cancelled(pipeline: RagPipeline) -> None:
    stream = await pipeline.astream(QUESTION, max_tokens=900)
    async with stream:
        async for _ in stream:
            break


def test_an_asynchronous_stream_may_be_left(pipeline: RagPipeline) -> None:
    asyncio.run(_cancelled(pipeline))
    assert pipeline.ask(QUESTION).text


def test_wrong_questions_are_refused(pipeline: RagPipeline) -> None:
    with pytest.raises(PromptError, match="too long"):
        pipeline.ask(QUESTION, max_tokens=5000)
    with pytest.raises(ConfigError, match="'cacheblend' does not run inside vLLM"):
        pipeline.ask(QUESTION, linker="cacheblend")


def test_what_is_missing_is_computed(pipeline: RagPipeline) -> None:
    """By an answer, and by `ragcache cache warm`."""
    fill(pipeline, ["meerkats.md"], "burrow", kv=False)
    first = pipeline.ask("Who stands guard?", collection="burrow", top_k=2)
    assert tiers(first) == {COMPUTED}
    pipeline.settle()
    assert COMPUTED not in tiers(pipeline.ask("Who stands guard?", collection="burrow", top_k=2))
    library = pipeline.library
    *_, done = warm(library, pipeline.models, library.catalog.collections.get("burrow"))
    assert done.computed > 0
    *_, again = warm(library, pipeline.models, library.catalog.collections.get("burrow"))
    assert again.computed == 0


def test_what_needs_the_torch_engine_says_so(settings: Settings) -> None:
    with pytest.raises(ConfigError, match="RAGCACHE_ENGINE='vllm' does not run this: choose torch"):
        load_torch_model(settings)


def test_a_cache_that_holds_no_prompt_is_told_with_its_settings(settings: Settings, pipeline: RagPipeline) -> None:
    """Behind the pipeline's end, since a process runs one engine."""
    with (
        pytest.raises(ModelError, match="this process runs a vLLM engine already"),
        RagPipeline(settings) as second,
    ):
        assert second.answering
    pipeline.close()
    tight = settings.model_copy(update={"vllm_kv_bytes": 1000, "vllm_context": 1024})
    with (
        pytest.raises(ModelError, match=r"vLLM did not start.*RAGCACHE_VLLM_KV_BYTES=1000"),
        RagPipeline(tight) as third,
    ):
        assert third.answering


def test_the_doctor_starts_it(settings: Settings) -> None:
    version, engine = check_engine(settings.model_copy(update={"link_when": "sooner"}))
    assert (version.name, version.ok, engine.ok) == ("vllm", True, True), (version, engine)
    assert "float32 on cpu, context of 2,048 tokens" in engine.detail


def test_the_command_line_prints_its_result_alone(settings: Settings) -> None:
    flags = {"engine": "vllm", "model": settings.model, "dtype": "float32", "data-dir": settings.data_dir,
             "cache-dir": settings.cache_dir, "max-tokens": 4}  # fmt: skip
    command = [sys.executable, "-c", "from app.cli import main; main()", "ask", QUESTION, "--json"]
    command += [str(part) for name, value in flags.items() for part in (f"--{name}", value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["report"]["incidents"] == []
    assert "WARNING" not in done.stderr


LEAVING = """
from pathlib import Path
from app import RagPipeline, Settings

pipeline = RagPipeline(Settings.model_validate_json(Path({path!r}).read_text()))
streams = [pipeline.stream("Who designed the lighthouse?", max_tokens=900) for _ in range(2)]
print(next(streams[0]))
"""


@pytest.mark.usefixtures("pipeline")
def test_a_program_may_end_amid_its_answers(settings: Settings, tmp_path: Path) -> None:
    kept = tmp_path / "settings.json"
    kept.write_text(settings.model_dump_json(exclude={"database_url"}))
    command = [sys.executable, "-c", LEAVING.format(path=str(kept))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an answer had begun"
    assert "Traceback" not in done.stderr
