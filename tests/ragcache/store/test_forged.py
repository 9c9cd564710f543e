"""Files with right checksums that hold something else than their name says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import ForeignEntry
from ragcache.store import DiskTier
from ragcache.store.base import Flaw
from ragcache.store.codec.raw import RawCodec
from ragcache.store.entry import pack
from ragcache.types import KVForm
from tests.ragcache.store.test_format import with_header


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
