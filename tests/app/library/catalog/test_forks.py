"""A server that opens the catalog and then forks its workers, as gunicorn does with preload_app."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import CollectionBusy
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.records import Collection
from app.settings import Settings
from tests.app.library.catalog.samples import document

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # with threads, which we mean


def child(act: Callable[[], object]) -> int:
    """The id of a process that does something and is stopped when that takes too long."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:  # it must never return into its parent's code
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(100)
        act()
        status = 0
    finally:
        if status:
            traceback.print_exc()
        os._exit(status)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def used(catalog: Catalog, collection: Collection, name: str) -> None:
    for number in range(20):
        catalog.documents.replace(collection, *document([f"{name}{number}"], name))
        assert catalog.collections.find("default") == collection
        assert catalog.documents.states(collection)[name]
        assert catalog.documents.find(collection, name) is not None


def test_parent_and_children_have_connections_of_their_own(catalog: Catalog, collection: Collection) -> None:
    used(catalog, collection, "before")
    children = [child(lambda name=name: used(catalog, collection, name)) for name in ("one", "two")]  # type: ignore[misc]
    used(catalog, collection, "parent")
    assert [ended(pid) for pid in children] == [0, 0]
    used(catalog, collection, "after")
    assert set(catalog.documents.states(collection)) == {"before", "parent", "one", "two", "after"}


def test_nothing_that_is_open_gets_into_a_child(catalog: Catalog, collection: Collection) -> None:
    """SQLite must not even close there what its parent has opened."""

    def look() -> None:
        targets = {str(link.resolve()) for link in Path("/proc/self/fd").iterdir()}
        assert not [name for name in targets if "catalog.sqlite" in name], targets

    used(catalog, collection, "before")
    assert ended(child(look)) == 0


def test_a_child_neither_keeps_nor_ends_its_parents_lock(
    settings: Settings, catalog: Catalog, collection: Collection
) -> None:
    """Of whoever was killed with a child, the lock is free; a child that leaves the block leaves it to its parent."""
    read, write = os.pipe()

    def hold() -> None:
        with open_catalog(settings) as own, own.alone(collection):
            left = os.fork()
            if left:
                os.waitpid(left, 0)
                stays = os.fork()
                if stays:
                    os.write(write, str(stays).encode())
                signal.pause()
        os._exit(0)

    holder = child(hold)
    stays = int(os.read(read, 20))
    try:
        with pytest.raises(CollectionBusy), catalog.alone(collection):
            pytest.fail("the lock is held")
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        with catalog.alone(collection, waiting=lambda _: None):
            pass
    finally:
        os.kill(stays, signal.SIGKILL)
        os.close(read)
        os.close(write)


def test_a_fork_waits_for_the_change_of_another_thread(catalog: Catalog, collection: Collection) -> None:
    """The child would have its lock for ever, and nobody in it to give it back."""
    writing, end = threading.Event(), threading.Event()

    def change() -> None:
        with catalog.database.writing() as connection:
            connection.exec_driver_sql("UPDATE collections SET live = live")
            writing.set()
            end.wait(60)

    writer = threading.Thread(target=change)
    writer.start()
    assert writing.wait(60)
    end.set()
    pid = child(lambda: used(catalog, collection, "child"))
    used(catalog, collection, "parent")
    assert ended(pid) == 0
    writer.join()


def test_a_fork_within_a_change_leaves_it_to_the_parent(catalog: Catalog, collection: Collection) -> None:
    with catalog.database.writing() as connection:
        connection.exec_driver_sql("UPDATE collections SET name = 'changed'")
        pid = child(lambda: None)
        assert ended(pid) == 0
    assert [one.name for one in catalog.collections.all()] == ["changed"]
