"""Several threads answer through one ChunkCache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.errors import PromptError
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, System, Variant, VariantKey
from tests.tiny import Tiny, make_chunks, make_question, make_system

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(20, 15, 18, 12)
THREADS = 4
Answer = tuple[list[int], float, list[str]]


def prompt(*chunks: Chunk) -> list[Segment]:
    return [SYSTEM, *chunks, QUESTION]


def answer(cache: ChunkCache, segments: Sequence[Segment], linker: str) -> Answer:
    generation = cache.generate(segments, max_tokens=5, linker=linker)
    return list(generation), generation.report.part, generation.report.incidents


def together(work: Sequence[Callable[[], object]]) -> list[Future[object]]:
    """All at once: each waits until the others are there."""
    start = threading.Barrier(len(work))

    def run(task: Callable[[], object]) -> object:
        start.wait(timeout=60)
        return task()

    with ThreadPoolExecutor(len(work)) as pool:
        return [pool.submit(run, task) for task in work]


@pytest.mark.parametrize("ram", [0, 60_000, None])
def test_answers_are_those_of_one_after_the_other(tiny: Tiny, tmp_path: Path, ram: int | None) -> None:
    cache = ChunkCache(tiny.engine, open_store(tmp_path, ram_bytes=ram, codec="raw"), keep_missed=False, linker="naive")
    list(cache.ingest(SYSTEM, DOCUMENT))
    random = np.random.default_rng(0)
    prompts = [prompt(*(DOCUMENT[place] for place in random.permutation(4)[:3])) for _ in range(THREADS)]
    linkers = ["query", "naive", "first_tokens:k=4", "cacheblend"]
    expected = [answer(cache, *pair) for pair in zip(prompts, linkers, strict=True)]

    def task(segments: list[Segment], linker: str) -> Callable[[], object]:
        return lambda: [answer(cache, segments, linker) for _ in range(4)]

    futures = together([task(*pair) for pair in zip(prompts, linkers, strict=True)])
    assert [future.result() for future in futures] == [[one] * 4 for one in expected]
    cache.store.check_integrity()


def test_a_cold_system_segment_is_computed_once(tiny: Tiny) -> None:
    cache = ChunkCache(tiny.engine, open_store(codec="raw"), "naive")
    futures = together([lambda: prefill_prompt(cache, prompt(DOCUMENT[0])).report.other_computed] * THREADS)
    assert sorted(future.result() for future in futures) == [0] * (THREADS - 1) + [len(SYSTEM)]


@pytest.mark.slow
def test_answers_are_right_while_entries_are_deleted_and_corrupted(tiny: Tiny, tmp_path: Path) -> None:
    """Every entry is exact here, so whatever is lost and kept again meanwhile, the answer is that of a full prefill."""
    cache = ChunkCache(
        tiny.engine, open_store(tmp_path, ram_bytes=0, codec="raw"), "naive", context_chunks=len(DOCUMENT)
    )
    keys = [variant.key for variant in cache.ingest(SYSTEM, DOCUMENT)]
    prompts = [prompt(*DOCUMENT[: count + 1]) for count in range(THREADS)]
    expected = [answer(cache, segments, "full")[0] for segments in prompts]
    done = threading.Event()

    def task(segments: list[Segment]) -> Callable[[], object]:
        return lambda: [answer(cache, segments, "naive")[0] for _ in range(12)]

    def spoil() -> int:
        random, rounds = np.random.default_rng(0), 0
        while not done.wait(0.001) or rounds < 20:
            spoil_one(cache, tmp_path, keys[random.integers(len(keys))], delete=bool(random.integers(2)))
            rounds += 1
        return rounds

    with ThreadPoolExecutor(1) as pool:
        vandal = pool.submit(spoil)
        futures = together([task(segments) for segments in prompts])
        done.set()
    assert [future.result() for future in futures] == [[one] * 12 for one in expected]
    assert vandal.result() >= 20
    assert cache.store.kept.quarantined, "some bad entry was met"
    cache.store.verify()
    cache.store.check_integrity()


def spoil_one(cache: ChunkCache, root: Path, key: VariantKey, delete: bool) -> None:
    if delete:
        cache.store.delete(key)
        return
    try:
        for path in root.rglob(f"{key.digest}.kv"):
            if path.parent.name == "quarantine":
                continue
            content = bytearray(path.read_bytes())
            content[-100] ^= 1
            beside = root / "spoilt"
            beside.write_bytes(content)
            beside.replace(path)  # as a whole: a reader has the old file or the bad one
    except FileNotFoundError:
        return  # it, or the folder being searched, was quarantined or deleted in this very moment


def test_a_failing_prompt_disturbs_no_other(tiny: Tiny) -> None:
    cache = ChunkCache(tiny.engine, open_store(codec="raw"), "query", keep_missed=False)
    list(cache.ingest(SYSTEM, DOCUMENT))
    good, bad = prompt(*DOCUMENT[1:3]), prompt(Chunk((1,) * 600))
    expected = answer(cache, good, "query")

    def fail() -> list[str]:
        messages = []
        for _ in range(10):
            with pytest.raises(PromptError) as raised:
                answer(cache, bad, "query")
            messages.append(str(raised.value))
        return messages

    futures = together([lambda: [answer(cache, good, "query") for _ in range(4)], fail] * 2)
    for right, wrong in zip(futures[::2], futures[1::2], strict=True):
        assert right.result() == [expected] * 4
        assert len(set(wrong.result())) == 1  # type: ignore[call-overload]


def test_a_system_segment_that_is_computed_holds_up_no_other(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ChunkCache(tiny.engine, open_store(tmp_path, codec="raw"), "naive", keep_missed=False)
    slow, begun, goes_on, computed = make_system(9), threading.Event(), threading.Event(), cache.kvgen.system
    times = list[System]()

    def system(segment: System) -> Variant:
        times.append(segment)
        if segment == slow:
            begun.set()
            assert goes_on.wait(60)
        return computed(segment)

    monkeypatch.setattr(cache.kvgen, "system", system)
    with ThreadPoolExecutor() as pool:
        behind_slow = [pool.submit(answer, cache, [slow, DOCUMENT[0], QUESTION], "naive") for _ in range(2)]
        try:
            assert begun.wait(60)
            assert pool.submit(answer, cache, prompt(DOCUMENT[0]), "naive").result(60)[0]
        finally:
            goes_on.set()
        assert behind_slow[0].result()[0] == behind_slow[1].result()[0]
    assert times == [slow, SYSTEM]
