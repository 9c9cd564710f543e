"""Nothing of a deleted text comes back: a keep that waits or runs meanwhile ends with its era."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import StoreError
from ragcache.keeping import Keeper
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Segment, Variant, VariantKey
from tests.prefixes import SYSTEM, disk, said, stored, text
from tests.tiny import make_chunks, make_tiny

LONG: list[Segment] = [SYSTEM, text(600, 1)]
(CHUNK,) = make_chunks(90)
DELETIONS: list[Callable[[KVStore], object]] = [
    KVStore.drop_prefixes,
    lambda store: store.drop_seeing([CHUNK.hash]),
    lambda store: store.drop_chunk("another", SYSTEM.hash, CHUNK.hash),
]


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return make_tiny(max_position_embeddings=2048).engine


@pytest.mark.parametrize("delete", DELETIONS)
def test_a_prefix_that_waits_to_be_kept(
    engine: TorchEngine, tmp_path: Path, delete: Callable[[KVStore], object]
) -> None:
    keeper, other = Keeper(), disk(tmp_path)  # as another process has it open
    cache = ChunkCache(engine, disk(tmp_path), "naive", keeper=keeper)
    said(cache, *LONG)
    with keeper.answering():
        said(cache, *LONG)
        delete(other)
    keeper.settle()
    assert not any(stored(cache, LONG))
    said(cache, *LONG)
    keeper.settle()
    assert all(stored(cache, LONG)), "who asks afterwards has it kept"
    assert keeper.take_told() == []
    keeper.close()


def test_an_answer_that_is_being_given(engine: TorchEngine, tmp_path: Path) -> None:
    cache, other = ChunkCache(engine, disk(tmp_path), "naive"), disk(tmp_path)
    said(cache, *LONG)
    answer = iter(cache.generate(LONG, max_tokens=3))
    next(answer)
    other.drop_prefixes()
    list(answer)
    assert not any(stored(cache, LONG))


@pytest.mark.parametrize("before", [True, False])
def test_a_prefix_that_is_being_kept(
    engine: TorchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Deleted just before its second block is there, or just after."""
    cache, other = ChunkCache(engine, open_store(tmp_path, codec="raw"), "naive"), disk(tmp_path)
    said(cache, *LONG)
    put, count = cache.store.put, []

    def meanwhile(variant: Variant) -> bool:
        count.append(variant)
        if before and len(count) == 2:
            other.drop_prefixes()
        kept = put(variant)
        if not before and len(count) == 2:
            other.drop_prefixes()
        return kept

    monkeypatch.setattr(cache.store, "put", meanwhile)
    _, report = said(cache, *LONG)
    assert len(count) == 2
    assert not any(stored(cache_over_disk := ChunkCache(engine, other, "naive"), LONG))
    assert cache_over_disk.store.kept.entries == 1, "the System segment"
    assert report.incidents == []


def test_what_a_full_disk_leaves_to_ram_goes_too(
    engine: TorchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path, codec="raw")
    cache = ChunkCache(engine, store, "naive", keep_missed=False)
    variant = cache.kvgen.capture(cache.system_variant(SYSTEM), [], CHUNK)
    put, era = store.put, store.era()

    def full(one: Variant) -> None:
        put(one)
        store.drop_seeing([CHUNK.hash])
        raise StoreError("full")

    monkeypatch.setattr(store, "put", full)
    with pytest.raises(StoreError, match="full"):
        store.put_within(era, variant)
    assert store.get(variant.key) is None


def test_a_chunk_that_a_prompt_lacked(engine: TorchEngine, tmp_path: Path) -> None:
    keeper, other = Keeper(), disk(tmp_path)
    cache = ChunkCache(engine, disk(tmp_path), "naive", keeper=keeper)
    with keeper.answering():
        said(cache, SYSTEM, CHUNK, text(20, 1))
        other.drop_chunk(engine.spec.fingerprint, SYSTEM.hash, CHUNK.hash)
    keeper.settle()
    assert other.kept.entries == 1, "the System segment"
    said(cache, SYSTEM, CHUNK, text(20, 1))
    keeper.settle()
    assert other.variants(VariantKey(engine.spec.fingerprint, SYSTEM.hash, (), CHUNK.hash).family)
    keeper.close()
