"""Keys of those who ask a server: `rk-<id>-<secret>`, of which the id is stored and of the secret a digest.

A check by the digest takes some 60 ms, so one that succeeded is remembered, by a code of the key that only this process
can make. For half a minute nothing is asked at all, so a key that another process revokes is good for so long at most;
from then on its row is read again, and not the digest computed: whoever sends wrong keys in masses keeps nobody out who
was in.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from app.errors import CatalogError, KeyLapsed, NotFound, can_be_shown
from app.library.catalog.database import Database, DatabasePart
from app.library.catalog.digests import decoy, digest, matches
from app.library.catalog.last_uses import LastUses
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import SCOPES, Key, KeyLimits, Scope
from app.library.catalog.serving_tables import KEYS
from app.library.catalog.tables import now

REMEMBERED_S = 30.0
REMEMBERED = 1024  # keys
CHECKS = 2  # at once: each takes 16 MiB and a core
LONGEST_NAME = 200
_FORM = re.compile(r"rk-([0-9a-f]{12})-([A-Za-z0-9_-]{43})")
_COLUMNS = [KEYS.c[name] for name in Key.__dataclass_fields__]


class Keys(DatabasePart):
    """None is ever deleted: what it owns stays its own."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic):
        super().__init__(database)
        self._known = KnownKeys(clock)
        self._checks = threading.BoundedSemaphore(CHECKS)
        self._decoy = decoy()
        self.uses = LastUses(database, KEYS, KEYS.c.last_used)

    def create(
        self,
        name: str,
        scopes: Iterable[Scope],
        *,
        collections: Iterable[Collection] | None = None,
        limits: KeyLimits | None = None,
        expires: datetime | None = None,
    ) -> tuple[Key, str]:
        """The key, and what its owner shows: nobody can be told it again. Without `collections` it reads all."""
        _check(name, scopes := frozenset(scopes), limits := limits or KeyLimits())
        ids = None if collections is None else frozenset(one.id for one in collections)
        key = Key(secrets.token_hex(6), name, scopes, ids, limits, now(), expires=expires)
        if not key.valid(key.created):
            raise CatalogError(f"a key that expires at {expires:%Y-%m-%d %H:%M} would never be good: name a later time")
        secret = secrets.token_urlsafe(32)
        values = vars(key) | {
            "digest": digest(secret),
            "scopes": sorted(scopes),
            "collections": None if ids is None else sorted(ids),
            "limits": {name: value for name, value in vars(limits).items() if value is not None},
        }
        with self._database.writing() as connection:
            connection.execute(insert(KEYS), values)
        return key, f"rk-{key.id}-{secret}"

    def all(self) -> list[Key]:
        """In the order in which they were made, with those that are good no more."""
        with self._database.reading() as connection:
            return [
                _key(row._mapping) for row in connection.execute(select(*_COLUMNS).order_by(KEYS.c.created, KEYS.c.id))
            ]

    def any(self) -> bool:
        """Whether there are some, be they revoked: a server whose last key is revoked is not open to all."""
        with self._database.reading() as connection:
            return connection.scalar(select(KEYS.c.id).limit(1)) is not None

    def get(self, key_id: str) -> Key:
        with self._database.reading() as connection:
            row = connection.execute(select(*_COLUMNS).where(KEYS.c.id == key_id)).one_or_none()
        if row is None:
            raise NotFound(f"no key {key_id!r}: `ragcache keys list` tells their ids")
        return _key(row._mapping)

    def revoke(self, key_id: str) -> Key:
        """For good; at once where this catalog is asked, and elsewhere when what is remembered there ends."""
        revoked = update(KEYS).where(KEYS.c.id == key_id, KEYS.c.revoked.is_(None)).values(revoked=now())
        with self._database.writing() as connection:
            connection.execute(revoked)
        self._known.forget(key_id)
        return self.get(key_id)

    def lapsed(self, ids: Iterable[str]) -> set[str]:
        """Those of keys that are good no more, of which nothing is remembered from then on."""
        named = set(ids)
        with self._database.reading() as connection:
            rows = connection.execute(select(*_COLUMNS).where(KEYS.c.id.in_(named)))
            moment = now()
            lapsed = named - {row.id for row in rows if _key(row._mapping).valid(moment)}
        for key_id in lapsed:
            self._known.forget(key_id)
        return lapsed

    def known(self, token: str) -> Key | None:
        """Of a good key that was verified a moment ago. It takes microseconds, and waits for nothing."""
        return self._known.get(token)

    def seen(self, token: str) -> bool:
        """Whether it was verified at any time: to do it again is to read a row."""
        return self._known.digest(token) is not None

    def verify(self, token: str) -> Key | None:
        """The key that it is, where that is good. It may take a while: call it where others need not wait.

        A wrong secret and an unknown id take as long, so that nobody learns which ids there are.
        """
        found = _FORM.fullmatch(token)
        if found is None:  # everybody can tell
            return None
        if key := self.known(token):
            return key
        with nullcontext() if self.seen(token) else self._checks:
            if key := self.known(token):  # somebody else has just checked it
                return key
            key = self._check(token, *found.groups())
        if key is not None:
            self.uses.note(key.id, key.last_used)
        return key

    def _check(self, token: str, key_id: str, secret: str) -> Key | None:
        round_ = self._known.round
        with self._database.reading() as connection:
            row = connection.execute(select(*_COLUMNS, KEYS.c.digest).where(KEYS.c.id == key_id)).one_or_none()
        seen = row is not None and row.digest == self._known.digest(token)
        right = seen or matches(secret, self._decoy if row is None else row.digest)
        if row is None or not right:
            return None
        key = _key(row._mapping)
        moment = now()
        if not key.valid(moment):
            return None
        assert isinstance(row.digest, str)
        left = REMEMBERED_S if key.expires is None else (key.expires - moment).total_seconds()
        self._known.add(token, key, row.digest, min(REMEMBERED_S, left), round_)
        return key


def hold_key(connection: Connection, key_id: str, moment: datetime) -> None:
    """Nobody else changes it before the end of the transaction. An owner that is no key passes. Raises KeyLapsed."""
    row = connection.execute(select(*_COLUMNS).where(KEYS.c.id == key_id).with_for_update()).one_or_none()
    if row is not None and not _key(row._mapping).valid(moment):
        raise KeyLapsed("this key has expired or was revoked meanwhile: ask again with one that is good")


class KnownKeys:
    """Tokens that were found good, by a code of each that tells nothing outside this process. Threads share it."""

    def __init__(self, clock: Callable[[], float]):
        self.round = 0  # a key that is looked at in one round may be revoked in the next
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, tuple[float, Key, str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, token: str) -> Key | None:
        code = self._code(token)
        with self._lock:
            until, key, _ = self._kept.get(code, (0.0, None, ""))
        return key if self._clock() < until else None

    def digest(self, token: str) -> str | None:
        """That it was found to match, however long ago."""
        code = self._code(token)
        with self._lock:
            found = self._kept.get(code)
        return None if found is None else found[2]

    def add(self, token: str, key: Key, digest: str, seconds: float, round_: int) -> None:
        """As it was in a round; not where keys were revoked since."""
        code = self._code(token)
        with self._lock:
            if round_ != self.round:
                return
            self._kept[code] = (self._clock() + seconds, key, digest)
            self._kept.move_to_end(code)
            while len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)

    def forget(self, key_id: str) -> None:
        with self._lock:
            self.round += 1
            for code in [code for code, (_, key, _) in self._kept.items() if key.id == key_id]:
                del self._kept[code]

    def _code(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode("utf-8", "surrogatepass"), "sha256")


def _key(row: Mapping[Any, Any]) -> Key:
    values = {name: row[name] for name in Key.__dataclass_fields__}
    ids = values["collections"]
    values |= {"scopes": frozenset(values["scopes"]), "collections": None if ids is None else frozenset(ids)}
    return Key(**values | {"limits": KeyLimits(**values["limits"])})


def _check(name: str, scopes: frozenset[str], limits: KeyLimits) -> None:
    if not name.strip() or not can_be_shown(name) or len(name) > LONGEST_NAME:
        raise CatalogError(f"{name!r} cannot name a key: use 1 to {LONGEST_NAME} printable characters")
    if not scopes or scopes - {*SCOPES}:
        told = ", ".join(sorted(scopes - {*SCOPES})) or "none"
        raise CatalogError(f"a key cannot have the scopes {told}: choose from {', '.join(SCOPES)}")
    for limit, value in vars(limits).items():
        if value is not None and value < 0:
            raise CatalogError(f"{limit} cannot be {value}")
