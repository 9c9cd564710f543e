"""Entries read in parts: some layers of a block of tokens."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from ragcache.errors import CorruptEntry, StoreError
from ragcache.loader import SegmentPiece
from ragcache.loader.reading import bring
from ragcache.loader.sequential import SequentialLoader
from ragcache.store import DiskTier, RamTier, index_parts, open_store
from ragcache.store.base import OpenEntry
from ragcache.store.codec import CODECS
from ragcache.store.entry import EntryReader
from ragcache.store.format import BLOCK, FINE
from ragcache.store.tiered import TieredStore
from ragcache.types import Variant

LENGTHS = [11, BLOCK + 5, 2 * BLOCK + 30]
LAYERS = 3


def parts_of(entry: OpenEntry) -> list[tuple[int, range]]:
    """Each layer of each block, in no order."""
    parts = [(block, range(n, n + 1)) for block, n in product(range(len(entry.blocks)), range(entry.shape[0]))]
    Random(0).shuffle(parts)
    return parts


def long_variant(make_variant: Any, tokens: int) -> Variant:
    variant: Variant = make_variant(tuple(range(tokens)), layers=LAYERS, heads=2)
    return variant


@pytest.mark.parametrize("tokens", LENGTHS)
def test_the_parts_are_the_whole(stores: Any, make_variant: Any, tokens: int) -> None:
    variant, store = long_variant(make_variant, tokens), stores.open()
    store.put(variant)
    whole = store.get(variant.key).variant
    if stores.survives_restart:
        store = stores.open()
    for turn in range(2):  # in the second, tiers have promoted it
        with store.open(variant.key) as entry:
            assert entry.origin().key == variant.key
            assert [span.start for span in entry.blocks] == [0, *(span.end for span in entry.blocks[:-1])]
            assert entry.blocks[-1].end == tokens
            k, v = torch.full(entry.shape, torch.nan), torch.full(entry.shape, torch.nan)
            for block, layers in parts_of(entry):
                span = slice(entry.blocks[block].start, entry.blocks[block].end)
                places = k[layers.start : layers.stop, :, span], v[layers.start : layers.stop, :, span]
                assert places[0].isnan().all()
                if turn:
                    entry.read_into(block, layers, *places)
                else:
                    places[0][:], places[1][:] = entry.read(block, layers)
        assert torch.equal(k, whole.k)
        assert torch.equal(v, whole.v)


@pytest.mark.parametrize("tokens", LENGTHS)
def test_what_is_read_in_parts_is_promoted_when_all_of_it_has_been(
    tmp_path: Path, make_variant: Any, tokens: int
) -> None:
    variant, ram = long_variant(make_variant, tokens), RamTier(None)
    disk = DiskTier(tmp_path, None, "raw")
    disk.put(variant)
    store = TieredStore(ram, disk)
    entry = store.open(variant.key)
    assert entry is not None
    with entry:
        *parts, last = parts_of(entry)
        for block, layers in [*parts, *parts]:
            entry.read(block, layers)
        assert not ram.holds(variant.key)
        entry.read(*last)
        assert not ram.holds(variant.key), "nobody who waits for a part waits for that"
    fetched = store.get(variant.key)
    assert fetched is not None
    assert (fetched.tier, fetched.variant.origin) == ("ram", variant.origin)
    assert torch.equal(fetched.variant.k, variant.k)
    assert torch.equal(fetched.variant.v, variant.v)
    store.check_integrity()


def test_threads_may_read_parts_at_once(stores: Any, make_variant: Any) -> None:
    variant, store = long_variant(make_variant, 2 * BLOCK + 30), stores.open()
    store.put(variant)
    if stores.survives_restart:
        store = stores.open()
    with store.open(variant.key) as entry, ThreadPoolExecutor(6) as pool:
        parts = parts_of(entry) * 4
        read = list(pool.map(lambda part: entry.read(*part), parts))
        whole = entry.variant()
        for (block, layers), (k, v) in zip(parts, read, strict=True):
            span = entry.blocks[block]
            assert torch.equal(k, whole.k[layers.start : layers.stop, :, span.start : span.end])
            assert torch.equal(v, whole.v[layers.start : layers.stop, :, span.start : span.end])


@pytest.mark.parametrize("ram", [0, None])
def test_a_bad_part_is_told_and_the_others_are_not_touched_by_it(
    tmp_path: Path, make_variant: Any, ram: int | None
) -> None:
    variant = long_variant(make_variant, BLOCK + 5)
    open_store(tmp_path, ram_bytes=0, codec="raw").put(variant)
    (path,) = tmp_path.rglob("*.kv")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of the last layer of the last block
    path.write_bytes(data)
    store = open_store(tmp_path, ram_bytes=ram, codec="raw")
    entry = store.open(variant.key)
    assert entry is not None
    with entry:
        k, _ = entry.read(0, range(LAYERS))
        assert torch.equal(k, variant.k[:, :, :FINE])
        last = BLOCK // FINE
        entry.read(last, range(LAYERS - 1))
        with pytest.raises(CorruptEntry, match=f"layer {LAYERS - 1} of tokens {BLOCK}"):
            entry.read(last, range(LAYERS - 1, LAYERS))
    assert store.get(variant.key) is None
    assert store.kept.quarantined == 1


def test_an_entry_that_is_open_is_read_on_when_it_is_gone(tmp_path: Path, make_variant: Any) -> None:
    variant, store = long_variant(make_variant, BLOCK + 5), open_store(tmp_path, ram_bytes=0, codec="raw")
    store.put(variant)
    entry = store.open(variant.key)
    assert entry is not None
    with entry:
        assert store.delete(variant.key)
        assert torch.equal(entry.variant().k, variant.k)
    with pytest.raises(AssertionError, match="another file's"):
        entry.read(0, range(1))


@pytest.mark.parametrize("ram", [0, None])
@pytest.mark.parametrize("layers", [range(1, LAYERS + 1), range(0, 2 * LAYERS, 2), range(LAYERS + 1), range(-1, 1)])
@pytest.mark.parametrize("tokens", [11, BLOCK + 5])
def test_layers_that_it_has_not_are_nobodys(
    tmp_path: Path, make_variant: Any, ram: int | None, layers: range, tokens: int
) -> None:
    """Of the next block they would be, and what lacks some would be promoted."""
    variant = long_variant(make_variant, tokens)
    open_store(tmp_path, ram_bytes=0, codec="raw").put(variant)
    store = open_store(tmp_path, ram_bytes=ram, codec="raw")
    entry = store.open(variant.key)
    assert entry is not None
    with entry, pytest.raises(AssertionError):
        entry.read(0, layers)
    fetched = store.get(variant.key)
    assert fetched is not None
    assert torch.equal(fetched.variant.k, variant.k)


@pytest.mark.parametrize("ram", [0, None])
@pytest.mark.parametrize("hindered", ["index", "quarantine"])
def test_what_fails_while_a_bad_file_is_taken_away_is_the_stores_error(
    tmp_path: Path, make_variant: Any, monkeypatch: pytest.MonkeyPatch, ram: int | None, hindered: str
) -> None:
    """A loader knows no other: it would end the engine for all requests."""
    variant = long_variant(make_variant, 11)
    open_store(tmp_path, ram_bytes=0, codec="raw").put(variant)
    (path,) = tmp_path.rglob("*.kv")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    monkeypatch.setattr(index_parts, "BUSY_S", 0.01)
    store = open_store(tmp_path, ram_bytes=ram, codec="raw")
    with closing(sqlite3.connect(tmp_path / "index.sqlite", isolation_level=None)) as other:
        if hindered == "index":
            other.execute("BEGIN IMMEDIATE")
        else:
            (tmp_path / "quarantine").write_text("no folder")
        with pytest.raises(StoreError, match="cannot read the cache folder"):
            store.get(variant.key)
        entry = store.open(variant.key)
        assert entry is not None
        with entry, pytest.raises(StoreError, match="cannot read the cache folder"):
            entry.read(0, range(LAYERS))
        delivery = bring(store, SegmentPiece(0, 7, (variant.key,)))
        assert delivery.loaded is not None
        assert delivery.loaded.chosen is None
        assert "cannot read the cache folder" in delivery.loaded.incidents[0]


@pytest.mark.parametrize("ram", [0, None])
def test_a_bad_profile_is_told_before_any_part_is_given_out(tmp_path: Path, make_variant: Any, ram: int | None) -> None:
    variant = long_variant(make_variant, 11)
    open_store(tmp_path, ram_bytes=0, codec="raw").put(variant)
    (path,) = tmp_path.rglob("*.kv")
    data = bytearray(path.read_bytes())
    with path.open("rb") as file:
        start = EntryReader.parts(file.fileno(), "entry.kv")._start
    data[start] ^= 1
    path.write_bytes(data)
    store = open_store(tmp_path, ram_bytes=ram, codec="raw")
    delivery = bring(store, SegmentPiece(0, 7, (variant.key,)))
    assert delivery.loaded is not None
    assert delivery.loaded.chosen is None
    assert store.kept.quarantined == 1


@pytest.mark.parametrize("codec", CODECS)
def test_some_heads_are_read_in_parts_too(tmp_path: Path, make_variant: Any, codec: str) -> None:
    variant = long_variant(make_variant, BLOCK + 5)
    whole = open_store(tmp_path, ram_bytes=0, codec=codec)
    whole.put(variant)
    expected = whole.get(variant.key)
    assert expected is not None
    assert expected.variant.k.equal(variant.k) == (codec == "raw")
    for ram in (0, None):
        entry = open_store(tmp_path, ram_bytes=ram, codec=codec, heads=slice(1, 2)).open(variant.key)
        assert entry is not None
        with entry:
            k, v = entry.read(BLOCK // FINE, range(2))
        assert torch.equal(k, expected.variant.k[:2, 1:2, BLOCK:])
        assert torch.equal(v, expected.variant.v[:2, 1:2, BLOCK:])


@pytest.mark.parametrize("ram", [0, None])
def test_a_loader_delivers_a_long_chunk_in_the_blocks_it_is_stored_in(
    tmp_path: Path, make_variant: Any, ram: int | None
) -> None:
    variant = long_variant(make_variant, 2 * BLOCK + 30)
    open_store(tmp_path, ram_bytes=0, codec="raw").put(variant)
    store = open_store(tmp_path, ram_bytes=ram, codec="raw")
    (delivery,) = SequentialLoader().begin([SegmentPiece(0, 7, (variant.key,))], store).deliveries()
    whole = [(7 + start, FINE) for start in range(0, 2 * BLOCK, FINE)]
    assert [(block.start, block.k.shape[2]) for block in delivery.blocks] == [*whole, (7 + 2 * BLOCK, 30)]
    assert torch.equal(torch.cat([block.v for block in delivery.blocks], dim=2), variant.v)
    assert store.stats()[0].tier == ("disk" if ram == 0 else "ram")
    assert store.stats()[0].entries == 1
