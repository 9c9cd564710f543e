"""Machines that share a bucket: stores with a disk each, over S3 behind a network, or over a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ragcache.store.opening import open_store
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.names import ObjectPlace
from ragcache.store.remote.store import SharedStore
from ragcache.types import VariantKey
from tests.buckets import Proxy, S3Bucket, new_bucket, proxied, s3_server

OpenMachine = Callable[..., SharedStore]
SETTLED_S = 60.0
NOW = 1_800_000_000.0


@pytest.fixture(scope="session")
def s3() -> Iterator[int]:
    """A server's port."""
    with s3_server() as port:
        yield port


@pytest.fixture
def network(s3: int) -> Iterator[Proxy]:
    with proxied(s3) as proxy:
        yield proxy


@pytest.fixture
def far(s3: int, network: Proxy, monkeypatch: pytest.MonkeyPatch) -> S3Bucket:
    """An empty bucket at the other end of the network."""
    bucket = new_bucket(s3, network.port)
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return bucket


@pytest.fixture
def folder_url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[OpenMachine]:
    """Opens the store of a machine by its name: one that was opened before is the same machine, started again."""
    opened: list[SharedStore] = []

    def of(
        name: str,
        url: str,
        *,
        ram: int | None = 0,
        disk: int | None = None,
        remote: int | None = None,
        codec: str = "raw",
        heads: slice | None = None,
        patience_s: float | None = None,
        order: str = "lru",
    ) -> SharedStore:
        shared = {"remote": url, "remote_bytes": remote, "remote_patience_s": patience_s}
        store = open_store(
            tmp_path / name, ram_bytes=ram, disk_bytes=disk, codec=codec, heads=heads, order=order, **shared
        )
        assert isinstance(store, SharedStore)
        opened.append(store)
        return store

    yield of
    for store in opened:
        store._arrivals.settle()  # what has come is kept on a thread of its own
        store.check_integrity()
        store._courier.close()
        store._bucket.close()


def place(digest: str, size: int = 100, age_s: float = 0.0) -> ObjectPlace:
    """Of an entry in a bucket, written so long before NOW."""
    written = datetime.fromtimestamp(NOW - age_s, UTC)
    return ObjectPlace(f"ab/{digest}", "f" * 64, digest, "all", size, written, "1")


def settled(store: SharedStore) -> None:
    """All that the bucket is to be told is told, and what has come is kept."""
    assert store.settle(SETTLED_S), store._journal.waiting()


def names_in(store: SharedStore) -> list[str]:
    """Of all objects."""

    async def listed(bucket: Bucket) -> list[str]:
        return [place.path async for page in bucket.places() for place in page]

    return sorted(store._bucket.submit(listed(store._bucket)).result(SETTLED_S))


def digests_in(store: SharedStore) -> set[str]:
    return {name.split("/")[2].partition(".")[0] for name in names_in(store)}


def object_of(folder: Path, key: VariantKey) -> Path:
    """In a bucket that is a folder."""
    (found,) = folder.rglob(f"{key.digest}.*.kv")
    return found
