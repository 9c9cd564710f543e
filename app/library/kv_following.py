"""KV of this machine without texts that others have deleted: each machine over a catalog has a cache folder of its own,
and who deletes a text reaches no other. The catalog has a log of what went (`departures.py`), and a file in the folder
says how far that was followed here. Of what was settled here, by whatever process over the folder, each process looks
for what is in its memory alone.

Deleting the file has all of the log followed again, which costs some time. A machine that was away while so much went
that the log no longer tells all of it says so, and follows what is told: the rest is for `ragcache cache prune`.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import xxhash

from app.library import Library
from app.library.catalog.database import batches
from app.library.catalog.departures import Departure
from app.library.catalog.tables import LARGEST_ID
from app.library.kv import EverybodysContexts, context_hashes, has_kv, may_hold_kv
from app.library.kv_removal import KvLoss, drop_departed, drop_prefixes, drop_within
from app.models import Models
from ragcache.host import private_file, put

_TEXTS = 512  # that are looked for at a time: it takes a look at the names of all entries
log = logging.getLogger(__name__)


class KvFollowing:
    """Of one process, whose RAM follows too. Threads may share it."""

    def __init__(self, library: Library, models: Models):
        self._library, self._models = library, models
        self._lock = threading.Lock()
        self._last: Departure | None = None  # that was followed by this process, or by others before it
        self._begun = False
        self._told = False  # that some was missed

    def follow(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Delete it -> how many variants went. Between two parts it ends when `stopped` says so. Raises CatalogError,
        ConfigError and ModelError, and StoreError when it has tried all: the next time begins there.
        """
        with self._lock:
            departures, loss = self._library.catalog.departures, KvLoss()
            newest = departures.newest()  # before it is looked for: what comes between is not missed
            if not may_hold_kv(self._models):
                self._last, self._begun = newest, True
                return 0
            if not self._begun:  # what others follow from here on says nothing of this one's memory
                self._last, self._begun = self._read(), True
            place = departures.place.name()
            number = departures.behind(self._last)
            if number is None:
                self._tell_missed()
                number = 0
            while not stopped() and (page := departures.after(number)):
                for here in (False, True):
                    own = (one for one in page if bool(place and one.place == place) is here)
                    self._drop(loss, _by_border((one.border, one.token_hash) for one in own), memory=here)
                self._followed(page[-1], loss)
                number = page[-1].number
            if not self._file.exists():  # there was no KV yet, or it could not be kept
                self._followed(self._last, loss)
            self._drop(loss, {"": self._library.catalog.orphans.left()})  # of who was killed there, or met a fault
        if loss.fault is not None:
            raise loss.fault
        return loss.variants

    def _drop(self, loss: KvLoss, by_border: Mapping[str, set[str]], *, memory: bool = False) -> None:
        """What nobody has any more of these texts, or what `memory` alone has. The name "" is of a collection with all
        its conversations.
        """
        library, models, shared = self._library, self._models, EverybodysContexts(self._library)
        for border, hashes in by_border.items():
            if not border and "" in hashes:
                with loss.noting(()):
                    drop_prefixes(models, memory=memory)
            for some in map(set, batches(sorted(hashes - {""}), _TEXTS)):
                with loss.noting(()):
                    if border:
                        unused = partial(_unused_within, library, border, some)
                        loss.variants += drop_within(models, unused, border, memory=memory)
                    else:
                        unused = partial(library.catalog.orphans.unused, some)
                        loss.variants += drop_departed(models, unused, shared, memory=memory)

    def _tell_missed(self) -> None:
        """Once. What the catalog lacks may be named by another tokenizer, or be a client's."""
        folder = self._library.settings.kv_folder
        if not self._told and has_kv(self._library.settings):
            told = (
                "the catalog %s no longer tells all of the texts that were deleted before what is followed now: KV of "
                "some that were deleted elsewhere may still be in %s, `ragcache cache prune` on this machine removes it"
            )
            log.warning(told, self._library.catalog.where, folder)
        self._told = True

    # -- how far it is ----------------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path:
        where = xxhash.xxh3_64_hexdigest(os.fsencode(self._library.catalog.where))
        return self._library.settings.kv_folder / f"departures-{where}.json"

    def _read(self) -> Departure | None:
        try:
            found = Departure(**json.loads(self._file.read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        return found if type(found.number) is int and 0 < found.number <= LARGEST_ID else None

    def _followed(self, last: Departure | None, loss: KvLoss) -> None:
        if last is None or loss.fault is not None:
            return
        self._last = last
        fresh = self._file.with_suffix(f".{uuid.uuid4().hex}.tmp")
        try:
            if has_kv(self._library.settings):
                private_file(fresh)
                fresh.write_text(json.dumps(vars(last)))
                put(fresh, self._file)
        except OSError as error:  # a later start follows it again
            log.warning("how far KV follows what is deleted cannot be kept in %s: %s", self._file, error)
            with suppress(OSError):
                fresh.unlink(missing_ok=True)


def _unused_within(library: Library, border: str, hashes: set[str]) -> set[str]:
    return hashes - context_hashes(library, border)


def _by_border(texts: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found = dict[str, set[str]]()
    for border, token_hash in texts:
        found.setdefault(border, set()).add(token_hash)
    return found
