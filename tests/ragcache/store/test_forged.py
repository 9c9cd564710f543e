"""Files with right checksums that hold something else than their name says."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import CorruptEntry, ForeignEntry
from ragcache.store import DiskTier
from ragcache.store.codec.raw import RawCodec
from ragcache.store.entry import pack
from ragcache.store.findings import Flaw
from ragcache.types import KVForm
from tests.ragcache.store.test_format import first_version, framed, header_of, packed, read_back, with_header


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskTier]:
    store = DiskTier(tmp_path, None, "raw")
    yield store
    store.check_integrity()


def test_a_file_of_another_form_is_foreign(store: DiskTier, tmp_path: Path, make_variant: Any) -> None:
    """Under the right name and checksums: placed, one layer or head would be taken for all."""
    sound, forged = make_variant((1, 2)), make_variant((1, 2), layers=1, heads=1)
    store.put(forged)
    assert store.get(forged.key) is not None, "nobody said what is expected"
    reopened = DiskTier(tmp_path, None, "raw")
    reopened.expect(KVForm(1, 1, 4), "another-engine")
    reopened.expect(KVForm(2, 2, 4), sound.key.fingerprint)
    flaws: list[Flaw] = []
    assert reopened.variants(forged.key.family, flaws) == []
    assert "another form" in flaws[0].reason
    reopened.stats()  # it is away
    store.put(forged)
    with pytest.raises(ForeignEntry, match="another form"):
        reopened.get(forged.key)
    store.put(sound)
    assert reopened.get(sound.key) is not None


def test_a_header_that_says_anything_is_taken_over(tmp_path: Path, make_variant: Any) -> None:
    """By whoever makes the index; it is no entry for those who look up."""
    DiskTier(tmp_path, None, "raw").put(make_variant())
    (path,) = tmp_path.rglob("*.kv")
    path.write_bytes(with_header(path.read_bytes(), codec=["raw"], lossless={}))
    (path.parent / os.fsdecode(b"\xff.kv")).write_bytes(b"not ours")
    (tmp_path / "index.sqlite").unlink()
    store = DiskTier(tmp_path, None, "raw")
    assert store.stats()[0].entries == 1
    assert store.variants(make_variant().key.family) == []
    assert [Path(flaw.where) for flaw in store.verify()] == []
    store.check_integrity()


def test_a_file_that_names_no_folder_is_quarantined(store: DiskTier, tmp_path: Path, make_variant: Any) -> None:
    variant = make_variant()
    store.put(variant)
    (path,) = tmp_path.rglob("*.kv")
    path.write_bytes(
        b"".join(pack(replace(variant, key=replace(variant.key, fingerprint="quarantine")), RawCodec())[1])
    )
    assert ["another variant" in flaw.reason for flaw in store.verify()] == [True]
    assert not path.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"context": [f"{one}" for one in range(100_000)], "lengths": [1] * 100_001, "history": ""},
        {"block": 1, "tokens": 2**17, "checksums": ["0"] * (2**18 + 2)},
        {"layers": 2**18, "checksums": ["0"] * (2**18 + 2)},
    ],
)
@pytest.mark.parametrize("written", [with_header, first_version])
def test_a_claim_costs_little(tmp_path: Path, make_variant: Any, changes: Any, written: Any) -> None:
    """Whoever reads it holds up others."""
    claimed = written(packed(make_variant()), **changes)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptEntry):
            read_back(claimed, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


def test_a_header_tells_its_border(tmp_path: Path, make_variant: Any) -> None:
    data = packed(make_variant())
    fields = header_of(data)
    del fields["border"]
    with pytest.raises(CorruptEntry, match="border"):
        read_back(framed(data, json.dumps(fields).encode()), tmp_path)
