"""KV of texts that another machine over the same catalog has deleted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest

from app.cachecare import prune
from app.chat.contexts import ContextRequest, Contexts
from app.ingestion.queue import IngestQueue
from app.library.catalog.records import Collection
from app.library.kv import border_around
from app.library.kv_following import KvFollowing
from app.library.removal import remove_collection
from ragcache.errors import StoreError
from ragcache.store.disk import DiskTier
from ragcache.store.ram import RamTier
from ragcache.types import VariantKey
from tests.app.library.machines import Machine
from tests.app.library.shelves import BOOKS, fill, put, reopened
from tests.app.library.test_removal import converse
from tests.waiting import wait_until

RYE, LAMPS = BOOKS.values()
BROUGHT = "A text that a client has brought."


def test_it_goes_with_what_saw_it_and_nothing_else_does(machines: Sequence[Machine]) -> None:
    one, other = machines
    collection = fill(one.library, one.models, kv=True)
    rye, lamps = other.captured(*RYE), other.captured(*LAMPS)
    saw = other.captured(RYE[0], LAMPS[0], LAMPS[1])[1:]
    around = other.captured(RYE[1], border=border_around(collection))
    stays = {*lamps, *other.captured(BROUGHT), *other.captured(*RYE, border="key-ann")}
    assert other.follow() == 0 and other.files.issuperset({*rye, *saw, *around, *stays})
    one.remove(collection, "/books/rye.txt")
    assert other.files.issuperset({*rye, *saw, *around}), "no machine reaches another one's disk"
    assert other.follow() == len({*rye, *saw, *around})
    assert not other.files.intersection({*rye, *saw, *around}) and other.files.issuperset(stays)
    assert other.library.catalog.orphans.left() == set()


def test_a_server_does_it_by_itself(machines: Sequence[Machine]) -> None:
    """Soon after its start."""
    one, other = machines
    collection = fill(one.library, one.models)
    gone, stays = set(other.captured(*RYE)), set(other.captured(*LAMPS))
    one.remove(collection, "/books/rye.txt")
    with closing(IngestQueue(other.library, other.models)) as queue:
        queue.start()
        wait_until(lambda: not other.files & gone, 60)
    assert other.files.issuperset(stays)


@pytest.mark.parametrize("pinned", [False, True])
def test_pruning_does_it_too_whatever_is_pinned_here(machines: Sequence[Machine], pinned: bool) -> None:
    one, other = machines
    collection = fill(one.library, one.models)
    gone = set(other.captured(*RYE))
    if pinned:
        key = next(key for text in RYE for key in _keys(other, text))
        other.models.store.pin(key, owner="collection")
    one.remove(collection, "/books/rye.txt")
    prune(other.library, other.models)
    assert not other.files & gone


def _keys(machine: Machine, text: str) -> list[VariantKey]:
    chunk = machine.models.template.chunk(text).hash
    return machine.models.store.everywhere(VariantKey("", "", (), chunk))


def test_what_memory_has_of_it_goes(machines: Sequence[Machine]) -> None:
    one, other = machines
    collection = fill(one.library, one.models)
    other.captured(*RYE)
    (key,) = _keys(other, RYE[0])
    assert other.models.store.at_hand(key) is not None
    following = KvFollowing(other.library, other.models)
    one.remove(collection, "/books/rye.txt")
    assert following.follow() and other.models.store.get(key) is None and _keys(other, RYE[0]) == []


def test_what_memory_has_of_a_text_that_another_process_here_deletes_goes(
    machines: Sequence[Machine],
) -> None:
    """What has seen it too, and what is within the border of a key."""
    collection, cli, served = _processes(machines[0])
    contexts, following = Contexts(cli.library, cli.models), KvFollowing(served.library, served.models)
    cache = contexts.create(ContextRequest(texts=[RYE[0]]), "ann", "key-ann")
    gone = [*served.captured(*RYE), *served.captured(RYE[0], LAMPS[0])[1:], *served.captured(RYE[0], border="key-ann")]
    stays = {*served.captured(*LAMPS), *served.captured(*RYE, border="key-bob")}
    assert following.follow() == 0 and _in_memory(served).issuperset({*gone, *stays})
    cli.remove(collection, "/books/rye.txt")
    contexts.expire(cache.id, "ann")
    assert _in_memory(served).issuperset(gone) and not served.files.intersection(gone)
    assert following.follow() == len({*gone}) and not _in_memory(served).intersection(gone)
    assert _in_memory(served).issuperset(stays) and served.files.issuperset(stays)


@pytest.mark.parametrize(("before", "begins_empty"), [(False, False), (False, True), (True, True)])
def test_what_others_have_followed_of_it_says_nothing_of_this_memory(
    machines: Sequence[Machine], before: bool, begins_empty: bool
) -> None:
    """Another process over this folder, as `ragcache cache prune` is, before this one has met any deletion."""
    one = machines[0]
    collection, cli, served = _processes(one)
    following = KvFollowing(served.library, served.models)
    if before:
        put(one.library, one.models, collection, "/0.txt", ["Number 0."])
        one.remove(collection, "/0.txt")
    if begins_empty:
        following.follow()
    gone = served.captured(*RYE)
    following.follow()
    cli.remove(collection, "/books/rye.txt")
    cli.follow()
    assert following.follow() == 2 and not _in_memory(served).intersection(gone)


def test_conversations_go_from_memory_with_a_collection_that_another_process_here_deletes(
    machines: Sequence[Machine],
) -> None:
    collection, cli, served = _processes(machines[0])
    following, kept = KvFollowing(served.library, served.models), {*converse(served.models, 200, 280)}
    following.follow()
    assert len(kept & _in_memory(served)) >= 2
    remove_collection(cli.library, cli.models, collection)
    following.follow()
    assert not kept & _in_memory(served)


def _in_memory(machine: Machine) -> set[str]:
    tier = machine.models.store.memory
    assert isinstance(tier, RamTier)
    return {*tier._residents}


def _processes(machine: Machine) -> tuple[Collection, Machine, Machine]:
    """The command and a server over one folder of a collection."""
    collection = fill(machine.library, machine.models)
    cli, served = (Machine(*reopened(machine.library, machine.models)) for _ in range(2))
    return collection, cli, served


def test_a_text_that_others_have_still_stays(machines: Sequence[Machine]) -> None:
    """A collection, or a context cache of everybody's; until that has gone too."""
    one, other = machines
    collection = fill(one.library, one.models)
    fill(one.library, one.models, "copy", {"/copy.txt": [RYE[1]]})
    contexts = Contexts(one.library, one.models)
    cache = contexts.create(ContextRequest(texts=[RYE[0]]))
    first, second = other.captured(RYE[0]), other.captured(RYE[1])
    one.remove(collection, "/books/rye.txt")
    other.follow()
    assert other.files.issuperset([*first, *second])
    remove_collection(one.library, one.models, one.library.catalog.collections.get("copy"))
    contexts.expire(cache.id)
    assert other.follow() == 2 and not other.files.intersection([*first, *second])


def test_a_text_that_has_come_again_stays(machines: Sequence[Machine]) -> None:
    one, other = machines
    collection = fill(one.library, one.models)
    there = other.captured(*RYE)
    one.remove(collection, "/books/rye.txt")
    put(one.library, one.models, collection, "/books/again.txt", RYE)
    assert other.follow() == 0 and other.files.issuperset(there)


def test_what_a_key_had_in_a_context_cache_goes_within_its_border(machines: Sequence[Machine]) -> None:
    one, other = machines
    contexts = Contexts(one.library, one.models)
    first, second = (contexts.create(ContextRequest(texts=list(RYE[:n])), "ann", "key-ann") for n in (2, 1))
    gone, stays = other.captured(*RYE, border="key-ann")[::-1], other.captured(*RYE, border="key-bob")
    contexts.expire(first.id, "ann")
    assert other.follow() == 1 and other.files.issuperset([*stays, gone[1]]) and gone[0] not in other.files
    contexts.expire(second.id, "ann")
    assert other.follow() == 1 and other.files.issuperset(stays) and gone[1] not in other.files


def test_a_file_that_cannot_be_deleted_is_tried_again(
    machines: Sequence[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = machines
    collection = fill(one.library, one.models)
    there = set(other.captured(*RYE))
    (stuck,), delete = _keys(other, RYE[0]), DiskTier.delete
    one.remove(collection, "/books/rye.txt")

    def fail(tier: DiskTier, key: VariantKey) -> bool:
        if key == stuck:
            raise StoreError("this file may not be deleted")
        return delete(tier, key)

    following = KvFollowing(other.library, other.models)
    with monkeypatch.context() as patch:
        patch.setattr(DiskTier, "delete", fail)
        with pytest.raises(StoreError, match="may not be deleted"):
            following.follow()
    assert other.files & there == {stuck.digest}
    assert following.follow() == 1 and not other.files & there


def test_what_a_killed_machine_left_goes_here_all_the_same(machines: Sequence[Machine]) -> None:
    one, other = machines
    collection = fill(one.library, one.models, kv=True)
    there = other.captured(*RYE)
    document = one.library.catalog.documents.find(collection, "/books/rye.txt")
    assert document is not None
    one.library.catalog.documents.delete(collection, [document.id])  # and no more
    assert other.follow() == 2 and not other.files.intersection(there)
    one.remove(collection, "/books/lamps.txt")
    assert other.library.catalog.orphans.left() == set(), "and is the machine's own to settle"


def test_a_collection_takes_conversations_on_all_machines(machines: Sequence[Machine]) -> None:
    one, other = machines
    collection = fill(one.library, one.models)
    kept = set(converse(other.models, 200, 280))
    assert len(kept & other.files) >= 2
    one.remove(collection, "/books/rye.txt")
    other.follow()
    assert len(kept & other.files) >= 2
    remove_collection(one.library, one.models, collection)
    other.follow()
    assert not kept & other.files


def test_a_text_that_comes_again_while_it_is_looked_for_stays(
    machines: Sequence[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = machines
    collection = fill(one.library, one.models)
    first, second = other.captured(RYE[0]), other.captured(RYE[1])
    one.remove(collection, "/books/rye.txt")
    seeing, again = DiskTier.seeing, iter([RYE[0]])

    def look(tier: DiskTier, chunks: set[str]) -> list[VariantKey]:
        for text in again:
            put(one.library, one.models, collection, "/books/again.txt", [text])
        return seeing(tier, chunks)

    monkeypatch.setattr(DiskTier, "seeing", look)
    assert other.follow() == 1 and other.files.issuperset(first) and not other.files.intersection(second)
