"""KV of texts that another machine over the same catalog has deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.cachecare import prune
from app.chat.contexts import ContextRequest, Contexts
from app.ingestion.queue import IngestQueue
from app.library import Library
from app.library.catalog import departures, open_catalog
from app.library.catalog.records import Collection
from app.library.kv import border_around
from app.library.kv_following import KvFollowing
from app.library.removal import remove_collection, remove_documents
from app.models import Models
from app.models.loading import TorchModel
from ragcache.errors import StoreError
from ragcache.store.disk import DiskTier
from ragcache.store.remote.store import SharedStore
from ragcache.types import VariantKey
from tests.app.library.shelves import BOOKS, files, fill, make_settings, put
from tests.app.library.test_removal import converse
from tests.waiting import wait_until

RYE, LAMPS = BOOKS.values()
BROUGHT = "A text that a client has brought."


@dataclass(frozen=True)
class Machine:
    library: Library
    models: Models

    def follow(self) -> int:
        """As a process that has just started."""
        return KvFollowing(self.library, self.models).follow()

    def captured(self, *texts: str, border: str = "") -> list[str]:
        """Addresses of their KV, each behind those before."""
        template = self.models.template.within(border)
        chunks = [template.chunk(text) for text in texts]
        return [one.key.digest for one in self.models.cache.ingest(template.system(), chunks)]

    @property
    def files(self) -> set[str]:
        return files(self.library)

    @property
    def file(self) -> Path:
        (found,) = self.library.settings.kv_folder.glob("departures-*")
        return found

    def remove(self, collection: Collection, source: str) -> None:
        document = self.library.catalog.documents.find(collection, source)
        assert document is not None
        remove_documents(self.library, self.models, collection, [document.id])


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def machines(
    request: pytest.FixtureRequest, tiny_folder: Path, tmp_path: Path, parts: TorchModel
) -> Iterator[Sequence[Machine]]:
    """Two over one catalog, each with a data and a cache folder of its own."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/shared.sqlite"
        if request.param == "postgresql":
            server = request.getfixturevalue("postgres_server")
            url = server.create("machines")
            stack.callback(server.drop, "machines")
        found = []
        for name in ("one", "other"):
            settings = make_settings(tiny_folder, tmp_path / name, database_url=SecretStr(url))
            models = stack.enter_context(Models(settings, parts))
            found.append(Machine(Library(settings, stack.enter_context(open_catalog(settings)), models), models))
        yield found


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


def test_it_is_not_looked_for_twice(machines: Sequence[Machine]) -> None:
    """What a client brings of a text that went before is his."""
    one, other = machines
    collection = fill(one.library, one.models)
    other.captured(*RYE)
    one.remove(collection, "/books/rye.txt")
    assert other.follow() == 2
    brought = other.captured(*RYE)
    assert other.follow() == 0 and other.files.issuperset(brought)
    for torn in ("torn", "[]", '{"number": "1", "token_hash": "", "border": ""}'):
        other.file.write_text(torn)
        other.captured(*RYE)
        assert other.follow() == 2, "nobody knows how far it was"


def test_a_machine_that_missed_a_part_of_the_log_says_so_and_follows_the_rest(
    machines: Sequence[Machine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What it does not know of may be anybody's. Pruning finds it."""
    one, other = machines
    collection = fill(one.library, one.models)
    rye, lamps, brought = other.captured(*RYE), other.captured(*LAMPS), other.captured(BROUGHT)
    put(one.library, one.models, collection, "/0.txt", ["Number 0."])
    one.remove(collection, "/0.txt")
    other.follow()
    monkeypatch.setattr(departures, "MOST", 2)
    one.remove(collection, "/books/rye.txt")
    for number in range(3):
        put(one.library, one.models, collection, "/more.txt", [f"More of {number}."])
        one.remove(collection, "/more.txt")
    assert len(other.library.catalog.departures.after(0)) == 2
    last = set(other.captured("More of 2."))
    assert other.follow() == 1 and not other.files & last and other.files.issuperset([*rye, *lamps, *brought])
    assert other.follow() == 0 and _missed(caplog) == 1
    other.file.unlink()
    assert other.follow() == 0 and _missed(caplog) == 2, "nobody knows how far it was"
    prune(other.library, other.models)
    assert not other.files.intersection(rye) and other.files.issuperset(lamps)


def _missed(caplog: pytest.LogCaptureFixture) -> int:
    return sum("no longer tells all of the texts" in one for one in caplog.messages)


def test_a_machine_that_had_no_kv_yet_has_missed_none(
    machines: Sequence[Machine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = machines
    collection = fill(one.library, one.models)
    monkeypatch.setattr(departures, "MOST", 1)
    one.remove(collection, "/books/rye.txt")
    following = KvFollowing(other.library, other.models)
    assert following.follow() == 0
    other.captured(*LAMPS)
    assert following.follow() == other.follow() == 0 and _missed(caplog) == 0


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


def test_what_it_put_into_the_bucket_since_goes_from_there(
    machines: Sequence[Machine], tiny_folder: Path, tmp_path: Path, parts: TorchModel
) -> None:
    """Whoever deleted the text could not know of it."""
    one, _ = machines
    collection = fill(one.library, one.models)
    settings = make_settings(
        tiny_folder, tmp_path / "third", database_url=one.library.settings.database_url, remote=f"file://{tmp_path}/b"
    )
    with Models(settings, parts) as models, open_catalog(settings) as catalog:
        third = Machine(Library(settings, catalog, models), models)
        one.remove(collection, "/books/rye.txt")
        third.captured(*RYE)
        third.captured(*LAMPS)
        assert isinstance(models.store, SharedStore) and models.store.settle(60)
        assert len([*(tmp_path / "b").rglob("*.kv")]) == 6, "the System segment's too"
        assert third.follow() == 2 and models.store.settle(60)
        assert len([*(tmp_path / "b").rglob("*.kv")]) == 4
