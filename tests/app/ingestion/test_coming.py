"""What a key may send bounds its files while they come, those that come beside each other together."""

from __future__ import annotations

import pytest

from app.errors import LimitReached
from app.ingestion.queue import IngestQueue
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import KeyLimits
from tests.app.ingestion.sending import Queues

PART = b"x" * 1024
EACH = 16 * len(PART)  # bytes after which it is looked at


@pytest.fixture
def queue(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> IngestQueue:
    """Nothing takes jobs from it."""
    monkeypatch.setattr("app.ingestion.spool._LOOK", EACH)
    queue = queues()
    queue.spool.open()
    return queue


def parts_taken(queue: IngestQueue, limits: KeyLimits, owner: str = "a") -> int:
    taken = 0
    with pytest.raises(LimitReached, match="bytes, and may send"), queue.incoming("a.txt", owner, limits) as file:
        while taken < 1000:
            file.write(PART)
            taken += 1
    return taken


def test_a_file_ends_where_its_key_may_send_no_more(queue: IngestQueue) -> None:
    assert 40 < parts_taken(queue, KeyLimits(nbytes=40 * len(PART))) <= 56
    assert not [*queue.spool.folder.glob("*/*.txt")]


def test_what_is_announced_is_looked_at_before_it_comes(queue: IngestQueue) -> None:
    with pytest.raises(LimitReached), queue.incoming("a.txt", "a", KeyLimits(nbytes=100)) as file:
        file.expect(101)
    with queue.incoming("a.txt", "a", KeyLimits(nbytes=100)) as file:
        file.expect(100)


def test_files_beside_each_other_share_what_may_come(queue: IngestQueue, collection: Collection) -> None:
    limits = KeyLimits(nbytes=60 * len(PART))
    with queue.incoming("first.txt", "a", limits) as first, queue.incoming("of b.txt", "b", limits) as other:
        for file in (first, other):
            for _ in range(33):
                file.write(PART)
        assert parts_taken(queue, limits) <= 48, "33 of another file come too"
        first.write(PART)  # which no later file ends
        queue.add(collection, "first.txt", first, "a", limits)
    assert parts_taken(queue, limits) <= 48, "and are there now"
    assert parts_taken(queue, limits, "c") > 48, "for the key that sent them"


def test_so_many_documents_come_at_a_time(queue: IngestQueue, collection: Collection) -> None:
    limits = KeyLimits(documents=2)
    with queue.incoming("a.txt", "a", limits) as first, queue.incoming("b.txt", "a", limits) as second:
        for file in (first, second):
            file.expect(1)
        told = "has sent 0 documents and sends 2, and may send 2"
        with pytest.raises(LimitReached, match=told), queue.incoming("c.txt", "a", limits) as third:
            third.expect(1)
        queue.add(collection, "a.txt", first, "a", limits)
    with queue.incoming("d.txt", "a", limits) as fourth, queue.incoming("e.txt", "a", limits) as fifth:
        fourth.expect(1)
        with pytest.raises(LimitReached, match="has sent 1 documents and sends 1, and may send 2"):
            fifth.expect(1)
