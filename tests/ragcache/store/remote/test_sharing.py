"""Two machines over one bucket, a folder: what one puts the other has, and what one deletes goes there too."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ragcache.errors import ConfigError
from ragcache.store import open_store
from ragcache.store.codec import CODECS
from ragcache.store.eviction import VARIANTS
from ragcache.store.findings import BUCKET
from ragcache.store.remote.journal import Kind
from ragcache.types import Variant
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, names_in, object_of, settled
from tests.ragcache.store.test_contract import assert_kept


def telling(variant: Variant, *seen: str) -> Variant:
    """All that had a part in it."""
    return replace(variant, lineage=replace(variant.lineage, seen=(*variant.key.context, *seen), complete=True))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("ram", [0, None])
def test_what_one_puts_another_has(
    machine: OpenMachine, folder_url: str, make_variant: Any, codec: str, ram: int | None
) -> None:
    variant = make_variant(tuple(range(37)), dtype=torch.bfloat16)
    one = machine("one", folder_url, codec=codec)
    one.put(variant)
    settled(one)
    other = machine("other", folder_url, ram=ram, codec="raw")
    (info,) = other.variants(variant.key.family)
    (there,) = one.variants(variant.key.family)
    assert (info.tier, info.level) == (BUCKET, 1 if ram == 0 else 2)
    assert (info.key, info.nbytes, info.lossless, info.tokens) == (there.key, there.nbytes, there.lossless, 37)
    fetched = other.get(variant.key)
    assert fetched is not None
    assert (fetched.tier, fetched.nbytes) == (BUCKET, info.nbytes)
    assert_kept(fetched.variant, variant, codec)
    settled(other)
    near = other.get(variant.key)
    assert near is not None
    assert near.tier == ("disk" if ram == 0 else "ram")
    assert_kept(near.variant, variant, codec)
    (kept,) = (tmp for tmp in Path(str(other._disk.root)).rglob("*.kv"))
    assert kept.read_bytes() == object_of(Path(folder_url.removeprefix("file://")), variant.key).read_bytes()


def test_what_the_disk_has_is_not_asked_of_the_bucket(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    near, far = make_variant(context=("a",)), make_variant(context=("b",))
    other = machine("other", folder_url)
    other.put(far)
    settled(other)
    store = machine("one", folder_url)
    store.put(near)
    assert [info.key for info in store.variants(near.key.family)] == [near.key]
    assert store.get(far.key) is not None, "it can be had all the same"


def test_nothing_is_brought_over_a_border_or_to_another_engine(
    machine: OpenMachine, folder_url: str, make_variant: Any
) -> None:
    mine = make_variant(border="mine")
    one, other = machine("one", folder_url), machine("other", folder_url)
    one.put(mine)
    settled(one)
    for stranger in (make_variant(), make_variant(border="theirs"), make_variant(fingerprint="engine-b")):
        assert other.variants(stranger.key.family) == []
        assert other.get(stranger.key) is None
    assert other.get(mine.key) is not None


def test_an_entry_that_is_there_is_not_sent_again(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    variant = make_variant()
    one, other = machine("one", folder_url), machine("other", folder_url)
    one.put(variant)
    settled(one)
    path = object_of(Path(folder_url.removeprefix("file://")), variant.key)
    before = path.stat().st_mtime_ns
    other.put(variant)
    settled(other)
    assert path.stat().st_mtime_ns == before


def test_evicted_entries_come_back(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    probe = machine("probe", folder_url)
    probe.put(make_variant((9, 9, 9)))
    size = probe.stats()[-1].nbytes
    store = machine("one", folder_url, disk=2 * size)
    variants = [make_variant((number,) * 3) for number in range(4)]
    for variant in variants:
        store.put(variant)
        settled(store)
    for variant in variants:
        fetched = store.get(variant.key)
        assert fetched is not None
        assert torch.equal(fetched.variant.k, variant.k)
    settled(store)
    assert store.stats()[-1].nbytes <= 2 * size


def test_a_deleted_entry_leaves_the_bucket(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    gone, stays = make_variant(context=("a",)), make_variant(context=("b",))
    store = machine("one", folder_url)
    store.put(gone)
    store.put(stays)
    settled(store)
    assert store.delete(gone.key)
    assert store.get(gone.key) is None, "at once"
    settled(store)
    assert digests_in(store) == {stays.key.digest}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_deleted_chunk_leaves_the_bucket(
    machine: OpenMachine, folder_url: str, make_variant: Any, elsewhere: bool
) -> None:
    """Also one that this machine has never had, behind a System segment or of an engine that it does not know."""
    chunk, of_other = make_variant(), make_variant(system="another")
    apart, of_engine = [make_variant((8, 8, 8)), make_variant(border="b")], make_variant(fingerprint="engine-b")
    one, other = machine("one", folder_url), machine("other", folder_url)
    for variant in (chunk, of_other, of_engine, *apart):
        other.put(variant)
    settled(other)
    one.drop_chunk("engine-a", "system", chunk.key.chunk, elsewhere=elsewhere)
    assert one.variants(chunk.key.family) == [], "at once"
    settled(one)
    left = [*apart, *([] if elsewhere else [of_other, of_engine])]
    assert digests_in(one) == {variant.key.digest for variant in left}


def test_families_leave_the_bucket_but_for_what_stays(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    """Also from a machine that has nothing of them."""
    gone, stays = make_variant(context=("a",)), make_variant(context=("b",))
    whole, other = make_variant((8, 8, 8)), make_variant((9, 9, 9))
    one, two = machine("one", folder_url), machine("two", folder_url)
    for variant in (gone, stays, whole, other):
        two.put(variant)
    settled(two)
    assert len(one.variants(gone.key.family)) == 2
    one.drop_families({gone.key.family: {stays.key.digest}, whole.key.family: set()})
    assert [info.key for info in one.variants(gone.key.family)] == [stays.key], "at once"
    settled(one)
    assert digests_in(one) == {stays.key.digest, other.key.digest}


def test_traces_of_a_text_leave_the_bucket(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    behind, through = telling(make_variant(context=("gone",))), telling(make_variant((2, 2, 2)), "gone")
    untold, innocent = make_variant((3, 3, 3)), telling(make_variant((4, 4, 4)), "other")
    one, other = machine("one", folder_url), machine("other", folder_url)
    for variant in (behind, through, untold, innocent):
        other.put(variant)
    settled(other)
    one.drop_seeing({"gone"})
    assert one.variants(behind.key.family) == [], "at once"
    settled(one)
    assert digests_in(one) == {innocent.key.digest}


def test_what_another_puts_again_is_its_own(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    variant = make_variant()
    one, other = machine("one", folder_url), machine("other", folder_url)
    one.put(variant)
    settled(one)
    one.delete(variant.key)
    settled(one)
    other.put(variant)
    settled(other)
    assert digests_in(other) == {variant.key.digest}


def test_what_is_deleted_on_its_way_does_not_stay(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = make_variant()
    one, other = machine("one", folder_url), machine("other", folder_url, ram=None)
    one.put(variant)
    settled(one)
    take_in = other._disk.take_in

    def slowly(*values: Any) -> None:
        other.delete(variant.key)
        take_in(*values)

    monkeypatch.setattr(other._disk, "take_in", slowly)
    other.get(variant.key)
    settled(other)
    assert other.get(variant.key) is None
    assert not other._disk.holds(variant.key)
    assert [stats.entries for stats in other.stats()] == [0, 0]


def test_a_text_put_again_after_its_deletion_stays(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    variant = make_variant()
    store = machine("one", folder_url)
    store.put(variant)
    store.drop_chunk("engine-a", "system", variant.key.chunk, elsewhere=True)
    store.put(variant)
    settled(store)
    assert digests_in(store) == {variant.key.digest}
    assert store.get(variant.key) is not None


def test_a_family_keeps_no_more_variants_than_a_disk(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    stores = [machine(name, folder_url) for name in ("one", "other")]
    lead = make_variant(context=())
    stores[0].put(lead)
    settled(stores[0])
    for number in range(VARIANTS + 4):
        stores[number % 2].put(make_variant(context=(f"c{number}",)))
        settled(stores[number % 2])
    digests = digests_in(stores[0])
    assert len(digests) == VARIANTS
    assert lead.key.digest in digests


def test_what_nobody_used_goes_oldest_first_when_the_bucket_is_over_its_budget(
    machine: OpenMachine, folder_url: str, make_variant: Any
) -> None:
    probe = machine("probe", f"{folder_url}-probe")
    probe.put(make_variant())
    size = probe.stats()[-1].nbytes
    store = machine("one", folder_url, remote=4 * size)
    variants = [make_variant((number,) * 3) for number in range(8)]
    for variant in variants:
        store.put(variant)
        settled(store)
    names = names_in(store)
    assert 2 <= len(names) <= 4
    assert variants[-1].key.digest in digests_in(store)
    assert store.stats()[-1].entries == 8, "the disk has a budget of its own"


def test_uploads_that_wait_are_done_by_the_next_process(
    machine: OpenMachine, folder_url: str, make_variant: Any
) -> None:
    variant, store = make_variant(), machine("one", folder_url)
    store._courier.close()
    store.put(variant)
    assert store._journal.waiting() == {Kind.UPLOAD: 1}
    again = machine("one", folder_url)
    settled(again)
    assert digests_in(again) == {variant.key.digest}


def test_a_child_of_a_fork_has_the_disk_alone(machine: OpenMachine, folder_url: str, make_variant: Any) -> None:
    near, far = make_variant(), make_variant((4, 4, 4))
    one, other = machine("one", folder_url), machine("other", folder_url)
    one.put(far)
    settled(one)
    other.put(near)
    assert other.variants(far.key.family) != []
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            other.look_ahead([far.key.family])
            other.near(lambda: [far.key])
            mine = make_variant((6, 6, 6))
            other.put(mine)  # which its parent, or the next one, uploads
            found = [other.get(variant.key) is not None for variant in (near, mine, far)]
            status = 0 if found == [True, True, False] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    other._courier.wake()
    settled(other)
    assert make_variant((6, 6, 6)).key.digest in digests_in(other)


def test_a_bucket_needs_a_disk(folder_url: str) -> None:
    with pytest.raises(ConfigError, match="needs a disk"):
        open_store(codec="raw", remote=folder_url)


@pytest.mark.parametrize("url", ["nonsense", "ftp://host/path", "s3://", "az://container/prefix"])
def test_what_is_no_bucket_is_told_with_what_would_be(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ConfigError, match="give s3://bucket/prefix"):
        open_store(tmp_path / "kv", ram_bytes=0, codec="raw", remote=url)
