"""Variants to store, and stores of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ragcache.address import untold_lineage
from ragcache.store import KVStore, open_store
from ragcache.store.codec import CODECS
from ragcache.store.disk import DiskTier
from ragcache.store.eviction.lru import LRU
from ragcache.store.ram import RamTier
from ragcache.store.remote.store import SharedStore
from ragcache.store.tiered import TieredStore
from ragcache.types import Lineage, Pass, Profile, Span, Variant, VariantKey, digest_of, ids_hash
from tests.buckets import credentials
from tests.ports import held_port

MakeVariant = Callable[..., Variant]
AWAY = "bucket away"  # below RAM and disk, at a port where nobody listens: whatever a store promises, it does without
KINDS = ["ram", *(f"disk-{codec}" for codec in CODECS), "tiered", "three tiers", AWAY]


def build_variant(
    ids: tuple[int, ...] = (5, 6, 7),
    *,
    context: tuple[str, ...] = ("c0", "c1"),
    fingerprint: str = "engine-a",
    layers: int = 2,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    heads: int = 2,
    dim: int = 4,
    lost: tuple[str, ...] = (),
    plain: bool = False,
    border: str = "",
    system: str = "system",
) -> Variant:
    """Its context had seen more than its address tells, so that it is kept in a store's own codec, unless it is a plain
    prefill's.
    """
    n, random = len(ids), np.random.default_rng([seed, *ids])
    k, v = (torch.from_numpy(random.standard_normal((layers, heads, n, dim), np.float32)).to(dtype) for _ in range(2))
    inter, intra, received = (random.random(shape, np.float32) for shape in ((len(context) + 1, n), n, n))
    profile = Profile(inter, intra, received, lengths=tuple(range(10, 11 + len(context))))
    key = VariantKey(fingerprint, system, context, ids_hash(ids), border=border)
    if plain or not context:
        return Variant(key, ids, k, v, profile, untold_lineage(key, n).rounded(*lost))
    behind = tuple(f"{name}-elsewhere" for name in context)
    lineage = Lineage((Pass(Span(0, n), behind),), context, complete=False, lost=lost)
    return Variant(replace(key, history=digest_of(*behind)), ids, k, v, profile, lineage)


@pytest.fixture
def make_variant() -> MakeVariant:
    return build_variant


class NearTier(RamTier):
    name = "near"


@dataclass
class StoreOfKind:
    """Opens stores of one kind, from which goes what was used longest ago; `budget` is in entries of the default
    variant's size.
    """

    kind: str
    folder: Path
    opened: list[KVStore] = field(default_factory=list)

    @property
    def codec(self) -> str:
        return self.kind.removeprefix("disk-") if self.kind.startswith("disk") else "raw"

    @property
    def survives_restart(self) -> bool:
        return self.kind != "ram"

    def open(self, budget: int | None = None) -> KVStore:
        sizes = self._entry_sizes() if budget is not None else {}
        ram = 0 if self.kind.startswith("disk") else None if budget is None else budget * sizes["ram"]
        disk = None if budget is None or self.kind == "ram" else budget * sizes["disk"]
        return self._open(self.folder / "store", ram, disk)

    def _entry_sizes(self) -> dict[str, int]:
        probe = self._open(self.folder / "probe", 0 if self.kind.startswith("disk") else None, None)
        probe.put(build_variant())
        return {stats.tier: stats.nbytes for stats in probe.stats()}

    def _open(self, folder: Path, ram: int | None, disk: int | None) -> KVStore:
        if self.kind == "three tiers":
            store: KVStore = TieredStore(NearTier(ram, LRU), RamTier(ram, LRU), DiskTier(folder, disk, "raw", LRU))
        else:
            url = "s3://bucket/kv" if self.kind == AWAY else ""
            root = None if self.kind == "ram" else folder
            store = open_store(root, ram_bytes=ram, disk_bytes=disk, codec=self.codec, order="lru", remote=url)
        self.opened.append(store)
        return store


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreOfKind]:
    stores = StoreOfKind(request.param, tmp_path)
    with held_port() as port:
        for name, value in credentials(port).items():
            monkeypatch.setenv(name, value)
        yield stores
        for store in stores.opened:
            store.check_integrity()
            if isinstance(store, SharedStore):
                store._courier.close()


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A cache folder that is sound at the end."""
    yield tmp_path / "kv"
    left = open_store(tmp_path / "kv", ram_bytes=0, codec="raw")
    left.check_integrity()
    assert left.verify() == []
    left.check_integrity()
