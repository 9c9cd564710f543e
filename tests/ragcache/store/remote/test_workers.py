"""A bucket below the stores of vLLM's own server: of its scheduler's side, and of ranks with some heads each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch

from ragcache.errors import ConfigError
from ragcache.loader import Loader, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.store import open_store
from ragcache.store.codec import CODECS
from ragcache.store.findings import BUCKET
from ragcache.store.nearness import AT
from ragcache.types import Variant
from tests.buckets import Proxy, S3Bucket
from tests.ragcache.store.remote.conftest import OpenMachine, object_of, settled
from tests.ragcache.store.test_contract import assert_kept
from tests.waiting import wait_until


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("ram", [0, None])
def test_a_rank_brings_its_own_heads_and_the_whole_file(
    machine: OpenMachine, folder_url: str, make_variant: Any, codec: str, ram: int | None
) -> None:
    variant = make_variant(tuple(range(37)), dtype=torch.bfloat16, heads=4)
    one = machine("one", folder_url, codec=codec)
    one.put(variant)
    settled(one)
    whole = one.get(variant.key)
    assert whole is not None
    ranks = [machine("other", folder_url, ram=ram, heads=slice(2 * rank, 2 * rank + 2)) for rank in range(2)]
    for turn in range(2):
        for rank, store in enumerate(ranks):
            fetched = store.get(variant.key)
            assert fetched is not None
            assert fetched.tier != BUCKET or not turn
            for mine, all_heads in ((fetched.variant.k, whole.variant.k), (fetched.variant.v, whole.variant.v)):
                torch.testing.assert_close(mine, all_heads[:, 2 * rank : 2 * rank + 2], rtol=0, atol=0)
            settled(store)
    (kept,) = Path(str(ranks[0]._disk.root)).rglob("*.kv")
    assert kept.read_bytes() == object_of(Path(folder_url.removeprefix("file://")), variant.key).read_bytes()


def far_away(machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any) -> Variant:
    """What another machine has put: two looks and an object, each later than a prompt waits."""
    variant: Variant = make_variant(tuple(range(37)))
    one = machine("one", far.url)
    one.put(variant)
    settled(one)
    network.latency_s = 1.0
    return variant


def test_what_another_process_planned_is_looked_for_with_patience(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any
) -> None:
    """Also while those who plan are in a hurry, since the bucket was late."""
    variant = far_away(machine, far, network, make_variant)
    patient = machine("patient", far.url, patience_s=60.0)
    patient._catalog._hurried_until[False] = inf
    entry = patient.bring(variant.key)
    assert entry is not None
    with entry:
        assert_kept(entry.variant(), variant, "raw")


def test_patience_ends_with_the_first_that_is_late(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any
) -> None:
    """Each of a prompt's chunks would cost it anew."""
    variant = far_away(machine, far, network, make_variant)
    patient = machine("patient", far.url, patience_s=0.1)
    assert patient.bring(make_variant(tuple(range(41))).key) is None
    patient._patience_s = 1e6
    assert patient.bring(variant.key) is None, "it would have come"
    network.latency_s = 0.0
    wait_until(lambda: not patient._catalog._looks, 60)  # or a connection would be left amid an answer


@pytest.mark.parametrize("made", [SequentialLoader, partial(CakeLoader, claims=False), CakeLoader, LayerwiseLoader])
def test_what_is_not_where_it_was_planned_is_waited_for_beside_the_disk(
    machine: OpenMachine, far: S3Bucket, network: Proxy, make_variant: Any, made: Callable[[DiskThreads], Loader]
) -> None:
    variant = far_away(machine, far, network, make_variant)
    store, threads = machine("other", far.url, patience_s=60.0), DiskThreads(1, "test-beyond", 120.0)
    pieces = [SegmentPiece(0, 0, (variant.key,)), SegmentPiece(1, 37, (variant.key,), tier="disk", nbytes=9, tokens=37)]
    loading = made(threads).begin(pieces, store)
    assert threads.submit(lambda: AT.disk).future.result(60), "its one thread is free, though nothing has come"
    assert loading.take() is None
    told = [one.loaded for one in loading.deliveries() if one.loaded is not None]
    assert [(one.chosen, one.tier) for one in told] == [(0, BUCKET)] * 2
    threads.close()


@pytest.mark.parametrize("remote_bytes", [0, -1, True, "5GB", 1.5])
def test_a_budget_that_is_none_would_empty_the_bucket(tmp_path: Path, folder_url: str, remote_bytes: Any) -> None:
    with pytest.raises(ConfigError, match="the bucket's budget is"):
        open_store(tmp_path / "kv", ram_bytes=0, codec="raw", remote=folder_url, remote_bytes=remote_bytes)


@pytest.mark.parametrize("remote", [5, True, ["s3://bucket"]])
def test_a_bucket_is_named_by_a_text(tmp_path: Path, remote: Any) -> None:
    with pytest.raises(ConfigError, match="give its URL"):
        open_store(tmp_path / "kv", ram_bytes=0, codec="raw", remote=remote)
    assert not (tmp_path / "kv").exists()
    assert open_store(tmp_path / "kv", ram_bytes=0, codec="raw", remote=None).stats()[0].tier == "disk"
