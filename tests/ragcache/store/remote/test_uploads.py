"""Uploads that something comes between: a deletion, a kill, a bucket or a disk that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragcache.store.remote.journal import Journal, Kind
from ragcache.store.remote.names import object_name
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, settled
from tests.waiting import wait_until


def test_what_who_was_killed_had_sent_after_its_deletion_does_not_stay(
    machine: OpenMachine, folder_url: str, make_variant: Any
) -> None:
    """It was put by a process that claimed its upload, when another had deleted all of its family."""
    variant, store = make_variant(), machine("one", folder_url)
    store._courier.close()
    store.put(variant)
    (file,) = store._disk.root.rglob("*.kv")
    data = file.read_bytes()
    assert len(Journal(store._disk.root, store._bucket.url).take((Kind.UPLOAD,), 1)) == 1
    other = machine("one", folder_url)
    other.drop_families({variant.key.family: set()})
    wait_until(lambda: other._journal.waiting() == {Kind.UPLOAD: 1}, 60)
    sent = Path(folder_url.removeprefix("file://"), object_name(variant.key, variant.lineage))
    sent.parent.mkdir(parents=True, exist_ok=True)
    sent.write_bytes(data)
    with other._journal._open() as connection:
        connection.execute("UPDATE tasks SET claimed = 0")  # its time is over
    other._courier.wake()
    settled(other)
    assert digests_in(other) == set()
