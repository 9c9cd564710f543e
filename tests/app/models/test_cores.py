from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest
import torch

import app.answering.stream
from app import RagPipeline
from app.answering.stream import AnswerStream
from app.models.cores import in_thread, release_helpers
from tests.waiting import wait_until

QUESTION = "Who designed the lighthouse?"
BEHIND = ("ragcache-keep", "ragcache-store")  # threads of what is done behind an answer: they end when it is


@pytest.fixture(autouse=True)
def two_cores() -> Iterator[None]:
    """On any machine, so that there are helpers."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def compute() -> None:
    torch.ones(1_000_000).add_(1)


def threads() -> int:
    """Of the process; those that are about to end have ended."""
    wait_until(lambda: not any(one.name in BEHIND for one in threading.enumerate()), 60)
    counts = [0, 1]
    while len(set(counts[-3:])) > 1:
        sleep(0.05)
        counts.append(sum(1 for _ in Path("/proc/self/task").iterdir()))
    return counts[-1]


def gained(work: Callable[[], object]) -> int:
    """Threads of the process that a thread leaves behind while it lives on."""
    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(threads).result()
        pool.submit(work).result()
        return pool.submit(threads).result() - before


def test_a_thread_lets_go_of_its_helpers_and_gets_new_ones() -> None:
    assert gained(compute) == 1
    assert gained(lambda: (compute(), release_helpers())) == 0
    assert gained(lambda: (compute(), release_helpers(), release_helpers(), compute())) == 1


@pytest.mark.slow
def test_an_answer_leaves_no_helpers_behind(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.ask(QUESTION)  # whatever else starts threads has started them

    def answer(read: Callable[[AnswerStream], object]) -> None:
        stream = pipeline.stream(QUESTION)
        # The tiny model's matrices are too small to be shared out.
        stream.then.append(lambda answer: (compute(), answer)[1])
        read(stream)

    assert gained(lambda: answer(lambda stream: stream.answer)) == 0
    assert gained(lambda: answer(lambda stream: stream.close())) == 0
    monkeypatch.setattr(app.answering.stream, "release_helpers", lambda: None)
    assert gained(lambda: answer(lambda stream: stream.answer)) == 1, "there were some"


def test_an_ingest_leaves_no_helpers_behind(pipeline: RagPipeline, tmp_path: Path) -> None:
    (tmp_path / "tide.md").write_text("The tide turns twice a day. " * 40)
    pipeline.ask(QUESTION)
    assert gained(lambda: (compute(), pipeline.ingest(tmp_path))) == 0


def test_neither_do_the_steps_of_an_asynchronous_program() -> None:
    def fail() -> None:
        compute()
        raise ValueError("no")

    async def steps() -> list[int]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        counts = [await in_thread(threads)]
        await in_thread(compute)
        counts.append(await in_thread(threads))
        with pytest.raises(ValueError, match="no"):
            await in_thread(fail)
        counts.append(await in_thread(threads))
        await asyncio.to_thread(compute)
        return [*counts, await asyncio.to_thread(threads)]

    before, *after = asyncio.run(steps())
    assert [count - before for count in after] == [0, 0, 1]
