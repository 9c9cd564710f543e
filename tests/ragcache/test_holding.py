"""What outlives its use: no cache, no variant, no logits is held by what goes on."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.errors import StoreError
from ragcache.loader import Delivery, sequential
from ragcache.loader.reading import bring
from ragcache.store import open_store
from ragcache.store.base import OpenEntry
from ragcache.store.ram import RamTier
from ragcache.types import Segment, VariantKey
from tests.tiny import Tiny, make_chunks, make_question, make_system

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(20, 31, 18)
PROMPT: list[Segment] = [SYSTEM, *reversed(DOCUMENT), QUESTION]


@pytest.fixture
def without_gc() -> Iterator[None]:
    """A program may run it seldom."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_gc")
def test_a_cache_that_nobody_holds_leaves_its_store(tiny: Tiny) -> None:
    cache = ChunkCache(tiny.engine, open_store(codec="raw"), "naive")
    list(cache.ingest(SYSTEM, DOCUMENT))
    list(cache.generate(PROMPT, max_tokens=3))
    store = weakref.ref(cache.store)
    del cache
    assert store() is None


def test_what_was_placed_is_not_held_while_the_rest_is_computed(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, placed, alive = open_store(tmp_path, ram_bytes=0, codec="raw"), list[weakref.ref[Any]](), list[int]()
    cache = ChunkCache(tiny.engine, store, "naive")
    list(cache.ingest(SYSTEM, DOCUMENT))
    logits = tiny.engine.logits

    def watched(*call: Any) -> Delivery:
        delivery = bring(*call)
        placed.extend(weakref.ref(block) for block in delivery.blocks)
        return delivery

    def counted(hidden: Any) -> Any:
        alive.append(sum(one() is not None for one in placed))
        return logits(hidden)

    monkeypatch.setattr(sequential, "bring", watched)
    monkeypatch.setattr(tiny.engine, "logits", counted)
    prefill_prompt(cache, PROMPT)
    assert (len(placed), alive) == (4, [0])


class Unreadable(RamTier):
    """A store whose disk answers with errors that name no entry."""

    def __init__(self) -> None:
        super().__init__(None)
        self.bad: set[str] = set()

    def open(self, key: VariantKey) -> OpenEntry | None:
        if key.chunk in self.bad:
            raise StoreError("input/output error")
        return super().open(key)


def test_a_system_segment_that_cannot_be_read_is_told_once(tiny: Tiny) -> None:
    store = Unreadable()
    cache = ChunkCache(tiny.engine, store, "naive")
    list(cache.ingest(SYSTEM, DOCUMENT))
    store.bad.add(SYSTEM.hash)
    report = prefill_prompt(cache, PROMPT).report
    assert report.incidents == ["cache entry not used: input/output error"]
    assert report.other_computed == len(SYSTEM)


def test_an_ingest_ends_where_the_variants_of_boilerplate_cannot_be_read(tiny: Tiny) -> None:
    """A new one would only push out one of those that cannot be read now."""
    store = Unreadable()
    cache = ChunkCache(tiny.engine, store, "naive", context_chunks=1)
    (boilerplate,), others = make_chunks(12, seed=7), make_chunks(*(9 + n for n in range(10)), seed=8)
    for other in others:
        list(cache.ingest(SYSTEM, [other, boilerplate]))
    store.bad.add(boilerplate.hash)
    with pytest.raises(StoreError, match="input/output error"):
        list(cache.ingest(SYSTEM, [DOCUMENT[0], boilerplate]))
