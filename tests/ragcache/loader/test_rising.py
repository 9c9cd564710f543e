"""What was read in part rises into memory, and nobody waits for that."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ragcache.loader.rising import Risings
from ragcache.loader.threads import DiskThreads
from ragcache.planning import plan_prompt
from ragcache.store import RamTier, open_store
from ragcache.types import VariantKey
from tests.cold_prompts import LIMIT_S, Gate, ingested
from tests.cold_prompts import prompt as cold
from tests.loaders import small_parts
from tests.tiny import Tiny


@pytest.fixture(scope="module", autouse=True)
def _small_parts() -> Iterator[None]:
    with small_parts(8):
        yield


class Others:
    """Idle or not, as often as somebody looks, and then the last of it for good."""

    def __init__(self, *idle: bool, look_s: float = 0.0):
        """`look_s`: passes between two looks."""
        self._idle, self._look_s, self.asked = list(idle), look_s, threading.Event()

    @property
    def idle(self) -> bool:
        self.asked.set()
        time.sleep(self._look_s)
        return self._idle.pop(0) if len(self._idle) > 1 else self._idle[0]


def test_what_rises_waits_for_whoever_reads_and_is_not_asked_for_twice(tiny: Tiny, tmp_path: Path) -> None:
    """A prompt that waits for the disk would be late behind what none waits for."""
    ingested(tiny, tmp_path)
    store = open_store(tmp_path, codec="raw")
    infos = [chunk.candidates[0].info for chunk in plan_prompt(cold(), tiny.engine.spec.fingerprint, store).chunks]
    others, gate = DiskThreads(2, "test-read", LIMIT_S), Gate(0)
    rising, ram = Risings(others, LIMIT_S), store.tiers()[0]
    assert isinstance(ram, RamTier)
    try:
        read = others.submit(lambda: gate(1))
        assert gate.shut.wait(LIMIT_S)
        for _ in range(3):
            for info in infos:
                rising.add(store, info.key)
        assert len(rising._waiting) == len(infos) and not any(ram.holds(info.key) for info in infos)
        gate.opened.set()
        read.future.result(LIMIT_S)
        rising._thread.submit(lambda: None).future.result(LIMIT_S)
        assert all(ram.holds(info.key) for info in infos) and not rising._waiting
    finally:
        gate.opened.set()
        rising.close()
        others.close()


def test_what_rises_ends_with_its_engine(tiny: Tiny, tmp_path: Path) -> None:
    """And opens no file before others have read."""
    ingested(tiny, tmp_path)
    store = open_store(tmp_path, codec="raw")
    info = plan_prompt(cold(), tiny.engine.spec.fingerprint, store).chunks[0].candidates[0].info
    others, (ram, disk), looked = Others(False), store.tiers(), list[VariantKey]()
    disk.look = looked.append  # type: ignore[attr-defined]
    rising = Risings(others, LIMIT_S)  # type: ignore[arg-type]
    rising.add(store, info.key)
    assert others.asked.wait(LIMIT_S)
    rising.close()
    assert not rising._waiting and not any(thread.is_alive() for thread in rising._thread._threads)
    assert isinstance(ram, RamTier) and not ram.holds(info.key) and not looked


@pytest.mark.parametrize(
    ("idle", "limit_s", "look_s", "rises"),
    [
        ((True, False), 0.1, 0.0, False),
        ((True, False, True, False, True), 0.06, 0.0, False),
        ((True, False, True), LIMIT_S, 0.0, True),
        ((True, True, False, True), 0.1, 0.15, True),
    ],
)
def test_what_has_begun_to_rise_waits_only_so_long(
    tiny: Tiny, tmp_path: Path, idle: Sequence[bool], limit_s: float, look_s: float, rises: bool
) -> None:
    """In all: it has a file open, and room that no budget knows. What it takes by itself is no wait."""
    ingested(tiny, tmp_path)
    store = open_store(tmp_path, codec="raw")
    info = plan_prompt(cold(), tiny.engine.spec.fingerprint, store).chunks[0].candidates[0].info
    ram, rising = store.tiers()[0], Risings(Others(*idle, look_s=look_s), limit_s)  # type: ignore[arg-type]
    try:
        rising.add(store, info.key)
        rising._thread.submit(lambda: None).future.result(LIMIT_S)
    finally:
        rising.close()
    assert not rising._waiting
    assert isinstance(ram, RamTier) and ram.holds(info.key) == rises
