"""Files that version 1 wrote serve on: what they do not tell is not taken for better than it may be."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ragcache.address import untold_lineage
from ragcache.errors import CorruptEntry, NewerEntry, StoreError
from ragcache.store import DiskTier
from ragcache.store.codec import CODECS
from ragcache.store.findings import Flaw
from ragcache.store.index_parts import VERSION
from tests.ragcache.store.test_format import first_version, header_of, packed, read_back, sections, with_header


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("plain", [True, False])
def test_it_is_read(tmp_path: Path, make_variant: Any, codec: str, plain: bool) -> None:
    variant = make_variant(dtype=torch.bfloat16, plain=plain)
    data = packed(variant, codec)
    new, old = read_back(data, tmp_path), read_back(first_version(data), tmp_path)
    assert (old.key, old.ids) == (variant.key, variant.ids)
    assert torch.equal(old.k, new.k)
    assert torch.equal(old.v, new.v)
    assert old.lineage == untold_lineage(variant.key, 3).rounded(*new.lineage.lost)
    assert old.lineage.complete is plain


def test_a_store_serves_it_and_writes_the_second(tmp_path: Path, make_variant: Any) -> None:
    variant = make_variant()
    DiskTier(tmp_path, None, "raw").put(variant)
    (path,) = tmp_path.glob("*/*/*/*.kv")
    path.write_bytes(first_version(path.read_bytes()))
    tier = DiskTier(tmp_path, None, "raw")
    (info,) = tier.variants(variant.key.family)
    found = tier.get(variant.key)
    assert found is not None
    assert (info.key, info.lossless, found.variant.lossless) == (variant.key, True, True)
    assert torch.equal(found.variant.k, variant.k)
    assert tier.verify() == []
    tier.put(found.variant)
    assert header_of(path.read_bytes())["seen"] == list(variant.key.context)


@pytest.mark.parametrize(("lossless", "expected"), [(True, ()), (False, ("unknown",)), (None, ())])
def test_what_was_lost_before_it_is_told_by_a_flag(
    tmp_path: Path, make_variant: Any, lossless: bool | None, expected: tuple[str, ...]
) -> None:
    """Older ones have none: their codec alone decides."""
    data = packed(make_variant())
    changes = {} if lossless is None else {"lossless": lossless}
    assert read_back(first_version(data, **changes), tmp_path).lineage.lost == expected
    assert read_back(first_version(packed(make_variant(), "int8"), **changes), tmp_path).lineage.lost == ("int8",)


@pytest.mark.parametrize(
    "changes",
    [
        {"lossless": "yes"},
        {"lossless": 1},
        {"lossless": None},
        {"ids_hash": "0" * 64},
        {"sections": [["profile"]]},
        {"sections": [["profile", 0.0, 60.0, ""]] * 4},
        {"sections": []},
    ],
)
def test_another_header_is_corrupt(tmp_path: Path, make_variant: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptEntry):
        read_back(first_version(packed(make_variant()), **changes), tmp_path)


def test_its_table_is_that_of_its_sections(tmp_path: Path, make_variant: Any) -> None:
    data = packed(make_variant())
    table = [[one.name, one.offset, one.size, one.checksum] for one in sections(data)]
    read_back(first_version(data, sections=table), tmp_path)
    for column, other in ((0, "layer 9"), (1, 64), (2, 1)):
        changed = [list(row) for row in table]
        changed[2][column] = other
        with pytest.raises(CorruptEntry, match="lists"):
            read_back(first_version(data, sections=changed), tmp_path)


def test_a_border_is_no_matter_of_its(tmp_path: Path, make_variant: Any) -> None:
    """What names another border names another entry."""
    variant = make_variant()
    DiskTier(tmp_path, None, "raw").put(variant)
    (path,) = tmp_path.glob("*/*/*/*.kv")
    path.write_bytes(first_version(path.read_bytes(), border="another"))
    tier = DiskTier(tmp_path, None, "raw")
    assert tier.variants(variant.key.family) == []
    assert tier.variants(replace(variant.key, border="another").family) == []


@pytest.mark.parametrize("newer", [{"version": 3}, {"codec": "int3"}])
def test_what_a_newer_one_wrote_is_left_alone(tmp_path: Path, make_variant: Any, newer: dict[str, Any]) -> None:
    """It may be running beside this one."""
    tier, variant = DiskTier(tmp_path, None, "raw"), make_variant()
    tier.put(variant)
    (path,) = tmp_path.glob("*/*/*/*.kv")
    path.write_bytes(with_header(path.read_bytes(), **newer))
    with pytest.raises(NewerEntry):
        tier.get(variant.key)
    flaws: list[Flaw] = []
    assert DiskTier(tmp_path, None, "raw").variants(variant.key.family, flaws) == []
    assert len(flaws) == 1
    (flaw,) = tier.verify()
    assert "made by a newer version" in flaw.reason
    assert tier.stats()[0].quarantined == 0
    assert path.exists()


def test_the_index_of_a_newer_one_is_not_made_anew(tmp_path: Path, make_variant: Any) -> None:
    DiskTier(tmp_path, None, "raw").put(make_variant())
    index = tmp_path / "index.sqlite"
    with closing(sqlite3.connect(index)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    made = index.stat().st_ino
    with pytest.raises(StoreError, match="newer version's"):
        DiskTier(tmp_path, None, "raw")
    assert index.stat().st_ino == made


def test_last_uses_come_over_from_an_older_index(tmp_path: Path, make_variant: Any) -> None:
    """Or what was used most would be evicted first."""
    tier, variants = DiskTier(tmp_path, None, "raw"), [make_variant((one, 1)) for one in range(3)]
    for variant in variants:
        tier.put(variant)
    for _ in range(6):
        tier.get(variants[0].key)
    tier.pin(variants[1].key)  # writes the uses
    tier.pin(variants[1].key, False)
    told = "SELECT digest, uses FROM entries ORDER BY used"
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as connection:
        before = connection.execute(told).fetchall()
        connection.execute(f"PRAGMA user_version = {VERSION - 1}")
    assert before[-1] == (variants[0].key.digest, 6)
    DiskTier(tmp_path, None, "raw")
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert connection.execute(told).fetchall() == before
