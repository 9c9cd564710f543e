"""How far a machine has followed what others delete."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.cachecare import prune
from app.chat.contexts import ContextRequest, Contexts
from app.library.catalog import departures
from app.library.kv_following import KvFollowing
from tests.app.library.machines import Machine
from tests.app.library.shelves import BOOKS, fill, put

RYE, LAMPS = BOOKS.values()
BROUGHT = "A text that a client has brought."


def test_it_is_not_looked_for_twice(machines: Sequence[Machine]) -> None:
    """What a client brings of a text that went before is his."""
    one, other = machines
    collection = fill(one.library, one.models)
    other.captured(*RYE)
    one.remove(collection, "/books/rye.txt")
    assert other.follow() == 2
    brought = other.captured(*RYE)
    assert other.follow() == 0 and other.files.issuperset(brought)
    own, era = one.captured(*RYE), one.models.store.era()
    assert one.follow() == 0 and one.files.issuperset(own), "who deleted it has done so before"
    assert one.models.store.era() == era, "and what is being computed is kept"
    for torn in ("torn", "[]", '{"number": "1", "token_hash": "", "border": ""}'):
        other.file.write_text(torn)
        other.captured(*RYE)
        assert other.follow() == 2, "nobody knows how far it was"


def test_a_key_keeps_what_it_brings_of_a_context_cache_that_has_ended_here(machines: Sequence[Machine]) -> None:
    one, other = machines
    contexts = Contexts(one.library, one.models)
    cache = contexts.create(ContextRequest(texts=[RYE[0]]), "ann", "key-ann")
    theirs = other.captured(RYE[0], border="key-ann")
    contexts.expire(cache.id, "ann")
    brought = one.captured(RYE[0], border="key-ann")
    assert one.follow() == 0 and one.files.issuperset(brought)
    assert other.follow() == 1 and not other.files.intersection(theirs)


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
