"""Keys of those who ask a server."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from app.errors import CatalogError, NotFound
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.keys import CHECKS, REMEMBERED, REMEMBERED_S, Keys, KnownKeys
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import KeyLimits
from app.library.catalog.serving_tables import KEYS
from app.library.catalog.tables import now
from app.settings import Settings
from tests.app.library.catalog.samples import DIMENSION, make_collection
from tests.waiting import wait_until


class Scrypt:
    """The real one, which remembers what it was asked for, and how often at once."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.most = self.inside = 0
        self.meanwhile = lambda: None
        self._real, self._lock = hashlib.scrypt, threading.Lock()

    def __call__(self, secret: bytes, *, salt: bytes, **costs: Any) -> bytes:
        with self._lock:
            self.calls.append({"secret": len(secret), "salt": len(salt), **costs})
            self.inside += 1
            self.most = max(self.most, self.inside)
        try:
            self.meanwhile()
            return self._real(secret, salt=salt, **costs)
        finally:
            with self._lock:
                self.inside -= 1


@pytest.fixture
def scrypt(monkeypatch: pytest.MonkeyPatch) -> Scrypt:
    scrypt = Scrypt()
    monkeypatch.setattr(hashlib, "scrypt", scrypt)
    return scrypt


@pytest.fixture
def clock() -> Iterator[list[float]]:
    """Its hands are moved by whoever has it."""
    yield [1000.0]


@pytest.fixture
def elsewhere(catalog: Catalog, clock: list[float]) -> Keys:
    """The keys as another server over the same database has them."""
    return Keys(catalog.database, clock=lambda: clock[0])


def set_row(catalog: Catalog, **values: Any) -> None:
    with catalog.database.writing() as connection:
        connection.execute(update(KEYS).values(**values))


def wrong(token: str) -> str:
    return token[:-1] + ("A" if token[-1] != "A" else "B")


def test_a_key_is_what_it_was_made_as(catalog: Catalog, collection: Collection) -> None:
    assert (catalog.keys.any(), catalog.keys.all()) == (False, [])
    limits = KeyLimits(requests_per_minute=60, nbytes=1 << 40)
    until = now() + timedelta(days=90)
    made, token = catalog.keys.create(
        "Änne", ["read", "ingest", "read"], collections=[collection], limits=limits, expires=until
    )
    assert (made.scopes, made.collections, made.limits) == ({"read", "ingest"}, {collection.id}, limits)
    assert token.startswith(f"rk-{made.id}-") and len(token) == 59
    other, another = catalog.keys.create("Änne", ["admin"])
    assert (other.collections, other.limits, other.expires) == (None, KeyLimits(), None)
    assert catalog.keys.all() == [made, other] and catalog.keys.any()
    assert catalog.keys.get(made.id) == made
    assert catalog.keys.verify(token) == made
    assert catalog.keys.verify(another) == replace(other, last_used=None)


def test_the_secret_is_nowhere(catalog: Catalog) -> None:
    _, token = catalog.keys.create("a", ["read"])
    catalog.keys.verify(token)
    secret = token.split("-", 2)[2]
    with catalog.database.reading() as connection:
        stored = repr(connection.execute(KEYS.select()).all())
    assert secret not in stored and "scrypt$" in stored
    assert secret not in repr(vars(vars(catalog.keys)["_known"])), "what is remembered is a code of it"


def test_two_keys_with_one_secret_would_have_two_digests(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_urlsafe", lambda _: "s" * 43)
    for name in "ab":
        catalog.keys.create(name, ["read"])
    with catalog.database.reading() as connection:
        assert len(set(connection.scalars(KEYS.select().with_only_columns(KEYS.c.digest)))) == 2


@pytest.mark.parametrize(
    "token", ["", "rk-", "rk--", "rk-zz-zz", "x" * 100_000, "\udcff", "ключ", "rk-012345678901-" + "a" * 44]
)
def test_what_is_no_key_costs_nothing(catalog: Catalog, scrypt: Scrypt, token: str) -> None:
    assert catalog.keys.verify(token) is None
    assert scrypt.calls == []


def test_an_unknown_id_costs_what_a_wrong_secret_does(
    catalog: Catalog, scrypt: Scrypt, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((len(a), len(b))) or real(a, b))
    key, token = catalog.keys.create("a", ["read"])
    assert catalog.keys.verify(wrong(token)) is None
    assert catalog.keys.verify(token.replace(key.id, "0" * 12)) is None
    made, of_wrong, of_unknown = scrypt.calls
    assert made == of_wrong == of_unknown
    assert compared == [(32, 32)] * 2
    catalog.keys.revoke(key.id)
    assert catalog.keys.verify(token) is None
    assert scrypt.calls[3:] == [made] and compared == [(32, 32)] * 3


def test_a_key_that_was_checked_is_not_checked_again_for_a_while(
    catalog: Catalog, elsewhere: Keys, clock: list[float], scrypt: Scrypt
) -> None:
    _, token = catalog.keys.create("a", ["read"])
    scrypt.calls.clear()
    assert elsewhere.known(token) is None
    assert [elsewhere.verify(token) for _ in range(5)] == [elsewhere.known(token)] * 5 != [None] * 5
    assert elsewhere.verify(wrong(token)) is None
    assert len(scrypt.calls) == 2, "the right one, and a wrong one that is like it"
    clock[0] += REMEMBERED_S
    assert elsewhere.known(token) is None
    assert elsewhere.verify(token) is not None
    assert len(scrypt.calls) == 2, "of one that was seen the row is read again, and no digest computed"
    assert elsewhere.verify(wrong(token)) is None
    set_row(catalog, digest="scrypt$16384$8$1$00$00")
    clock[0] += REMEMBERED_S
    assert elsewhere.verify(token) is None, "it is no more the digest that it matched"


def test_a_revocation_counts_at_once_here_and_soon_elsewhere(
    catalog: Catalog, elsewhere: Keys, clock: list[float]
) -> None:
    key, token = catalog.keys.create("a", ["read"])
    _, kept = catalog.keys.create("b", ["read"])
    for keys in (catalog.keys, elsewhere):
        assert keys.verify(token) and keys.verify(kept)
    revoked = catalog.keys.revoke(key.id)
    assert revoked.revoked is not None
    assert (catalog.keys.known(token), catalog.keys.verify(token)) == (None, None)
    assert elsewhere.verify(token) is not None
    clock[0] += REMEMBERED_S
    assert elsewhere.verify(token) is None
    assert catalog.keys.verify(kept) and elsewhere.verify(kept)
    assert catalog.keys.revoke(key.id).revoked == revoked.revoked, "the first time counts"
    assert catalog.keys.any(), "a server whose keys are revoked is not open"
    with pytest.raises(NotFound, match="no key 'nobody'"):
        catalog.keys.revoke("nobody")


def test_a_key_that_is_revoked_while_it_is_checked_is_not_remembered(catalog: Catalog, scrypt: Scrypt) -> None:
    key, token = catalog.keys.create("a", ["read"])
    scrypt.meanwhile = lambda: catalog.keys.revoke(key.id) and None
    catalog.keys.verify(token)
    assert catalog.keys.known(token) is None
    assert catalog.keys.verify(token) is None


def test_a_key_expires(catalog: Catalog, elsewhere: Keys, clock: list[float]) -> None:
    _, token = catalog.keys.create("a", ["read"], expires=now() + timedelta(seconds=REMEMBERED_S / 2))
    assert elsewhere.verify(token) is not None
    clock[0] += REMEMBERED_S / 2
    assert elsewhere.known(token) is None, "no longer than it is good"
    set_row(catalog, expires=now() - timedelta(seconds=1))
    assert elsewhere.verify(token) is None
    with pytest.raises(CatalogError, match="would never be good"):
        catalog.keys.create("a", ["read"], expires=now())


def test_its_use_is_written_down_behind_it_once_a_minute(catalog: Catalog) -> None:
    key, token = catalog.keys.create("a", ["read"])
    started = now()
    catalog.keys.verify(token)
    assert catalog.keys.get(key.id).last_used is None, "a commit waits for the disk, and whoever asks for neither"
    catalog.write_uses()
    first = catalog.keys.get(key.id).last_used
    assert first is not None and started <= first <= now()
    for earlier in (timedelta(), timedelta(minutes=2)):
        set_row(catalog, last_used=first - earlier)
        again = Keys(catalog.database)
        again.verify(token)
        again.uses.write()
        found = catalog.keys.get(key.id).last_used
        assert found is not None and (found == first) == (not earlier)


def test_a_use_that_cannot_be_written_down_yet_waits(catalog: Catalog, settings: Settings) -> None:
    key, token = catalog.keys.create("a", ["read"])
    with open_catalog(settings, busy_seconds=0.1) as other:
        with catalog.database.writing() as connection:
            connection.execute(update(KEYS).values(name="b"))
            assert other.keys.verify(token) == key
            other.write_uses()
        assert catalog.keys.get(key.id).last_used is None
    assert catalog.keys.get(key.id).last_used is not None, "written down at the end at the latest"


def test_a_use_waits_for_nobody_who_writes(catalog: Catalog) -> None:
    """An ingest may write for half a minute, and whoever asks waits for his key to be looked at."""
    key, token = catalog.keys.create("a", ["read"])
    with ThreadPoolExecutor(1) as pool, catalog.database.writing() as connection:
        connection.execute(update(KEYS).values(name="a"))
        assert pool.submit(catalog.keys.verify, token).result(60) == key


def test_a_key_that_was_seen_waits_for_none_that_is_checked(
    catalog: Catalog, elsewhere: Keys, clock: list[float], scrypt: Scrypt
) -> None:
    """Whoever sends wrong keys in masses keeps nobody out who was in."""
    _, token = catalog.keys.create("a", ["read"])
    assert elsewhere.verify(token)
    clock[0] += REMEMBERED_S
    go_on = threading.Event()
    scrypt.meanwhile = lambda: go_on.wait(60) and None
    with ThreadPoolExecutor(CHECKS + 1) as pool:
        tried = [pool.submit(elsewhere.verify, wrong(token)) for _ in range(CHECKS)]
        wait_until(lambda: scrypt.inside == CHECKS, 60)
        try:
            assert pool.submit(elsewhere.verify, token).result(60) is not None
        finally:
            go_on.set()
        assert [one.result() for one in tried] == [None] * CHECKS


def test_another_collection_of_the_same_name_is_not_its(catalog: Catalog) -> None:
    """It reads on in one that is renamed and embedded anew."""
    first = make_collection(catalog, "notes")
    key, _ = catalog.keys.create("a", ["read"], collections=[first])
    catalog.collections.rename(first, "old notes")
    anew = catalog.collections.reembed(catalog.collections.get("old notes"), "other", "g" * 64, DIMENSION, [])
    assert anew.uid != first.uid
    assert key.collections == {anew.id}
    catalog.collections.delete(anew)
    assert make_collection(catalog, "notes").id not in (catalog.keys.get(key.id).collections or set())


def test_threads_check_a_key_once_and_few_at_a_time(catalog: Catalog, scrypt: Scrypt) -> None:
    _, token = catalog.keys.create("a", ["read"])
    scrypt.calls.clear()
    count = 4 * CHECKS
    with ThreadPoolExecutor(count) as pool:
        begun = threading.Barrier(count)
        found = list(pool.map(lambda _: (begun.wait(), catalog.keys.verify(token))[1], range(count)))
        assert all(found) and len(scrypt.calls) <= CHECKS
        assert list(pool.map(lambda _: catalog.keys.verify(wrong(token)), range(count))) == [None] * count
    assert scrypt.most <= CHECKS


def test_what_is_remembered_has_a_bound(catalog: Catalog) -> None:
    key, _ = catalog.keys.create("a", ["read"])
    known = KnownKeys(lambda: 0.0)
    for number in range(REMEMBERED + 5):
        known.add(str(number), key, "", 1, known.round)
    assert len(known) == REMEMBERED
    assert (known.get("4"), known.get("5")) == (None, key)


@pytest.mark.parametrize(
    ("name", "scopes", "limits", "said"),
    [
        ("", ["read"], {}, "cannot name a key"),
        ("a\n", ["read"], {}, "cannot name a key"),
        ("x" * 201, ["read"], {}, "cannot name a key"),
        ("a", [], {}, "the scopes none: choose from read, ingest, admin"),
        ("a", ["read", "write"], {}, "the scopes write: choose"),
        ("a", ["read"], {"concurrent": -1}, "concurrent cannot be -1"),
    ],
)
def test_what_can_be_no_key(catalog: Catalog, name: str, scopes: Any, limits: dict[str, int], said: str) -> None:
    with pytest.raises(CatalogError, match=said):
        catalog.keys.create(name, scopes, limits=KeyLimits(**limits))
    assert not catalog.keys.any()
