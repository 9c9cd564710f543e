"""Explicit context caches (EPIC, section 4): texts whose KV is computed once, under an id that messages name in any
order and number.

A cache belongs to its owner, and its KV is within its owner's border. SQL says what there is: a row is written before
its KV is, and goes before it but behind its pins, so what a killed process leaves is a cache that can be deleted, or KV
of nobody that nobody pins, which `ragcache cache prune` finds. What has lost its KV is computed again by the prompt
that uses it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from app.chat.messages import Resolve
from app.errors import CatalogError, NotFound
from app.library import Library
from app.library.catalog.serving_records import ContextCache
from app.library.catalog.tables import now
from app.library.identities import Identity
from app.library.kv import EverybodysContexts, may_hold_kv
from app.library.kv_removal import KvLoss, drop_kv, identities_to_drop
from app.models import Models
from app.prompt import check_text
from ragcache.address import system_address
from ragcache.errors import ConfigError, PromptError, RagcacheError, StoreError
from ragcache.types import Chunk, System, VariantKey

if TYPE_CHECKING:
    from ragcache.cache import ChunkCache

MOST_CHUNKS = 1024  # of one cache
LONGEST_S = 366 * 24 * 3600.0
SWEEP_S = 30.0
PINNED = 0.5  # of the disk's budget, by all owners together
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ContextRequest:
    """Texts or lists of tokens. A text is one chunk, or what a splitter (`split`) makes of it."""

    texts: Sequence[str] = ()
    tokens: Sequence[Sequence[int]] = ()
    split: str | None = None
    ttl: float | None = None  # seconds; None: until it is expired by hand
    pinned: bool = False  # its KV makes no room for other KV

    def __post_init__(self) -> None:
        if bool(self.texts) == bool(self.tokens):
            raise PromptError("a context cache is made of texts or of tokens: give one of the two")
        if self.split is not None and self.tokens:
            raise PromptError("tokens are chunks already: leave `split` out, or give texts")
        if self.ttl is not None and not 0 < self.ttl <= LONGEST_S:
            raise ConfigError(f"ttl={self.ttl}: give seconds, up to {LONGEST_S:.0f}, or none")


class Contexts:
    """Threads share it. An id that is not there, has expired or is another owner's raises NotFound, the same."""

    def __init__(self, library: Library, models: Models):
        self._rows = library.catalog.context_caches
        self._library, self._models = library, models
        self._settings = models.settings
        self._lock = threading.Lock()  # of what is counted before it is written, and looked at before it is dropped

    def create(self, request: ContextRequest, owner: str = "", border: str = "") -> ContextCache:
        """With its KV. Raises PromptError for what no prompt can hold, ConfigError where the owner has enough,
        StoreError where the KV cannot be kept, and NotFound where it is deleted meanwhile; nothing is left then.
        """
        self.sweep()
        cache = self._models.cache
        system = System(self._models.template.system().ids, border)
        chunks = [Chunk(ids, border) for ids in self._ids(request)]
        self._check(cache, system, chunks)
        expires = None if request.ttl is None else now() + timedelta(seconds=request.ttl)
        nbytes = sum(map(len, chunks)) * cache.engine.spec.token_bytes
        with self._lock:
            self._check_room(owner, nbytes, request.pinned)
            made = self._rows.create(
                owner,
                border=border,
                model=cache.engine.spec.fingerprint,
                chunks=[[chunk.hash, chunk.ids] for chunk in chunks],
                nbytes=nbytes,
                expires=expires,
                pinned=request.pinned,
            )
        if self._settings.kv != "off":
            self._capture(cache, system, chunks, made, request.ttl)
        return made

    def get(self, cache_id: str, owner: str = "") -> tuple[ContextCache, list[int]]:
        """With the tokens of each chunk."""
        found = self._rows.get(cache_id, owner)
        return found, [len(ids) for _, ids in self._rows.chunks(cache_id, owner)]

    def all(self, owner: str = "") -> list[ContextCache]:
        """The newest first."""
        return self._rows.all(owner)

    def segments(self, cache_id: str, owner: str = "") -> list[Chunk]:
        """Its chunks, for a prompt within its border."""
        found = self._rows.get(cache_id, owner)
        if found.model != self._models.cache.engine.spec.fingerprint:
            raise NotFound(f"the context cache {cache_id!r} is another model's: make it again")
        chunks = self._rows.chunks(cache_id, owner)
        self._rows.uses.note(cache_id, found.used)
        return [Chunk(tuple(ids), found.border) for _, ids in chunks]

    def resolver(self, owner: str = "") -> Resolve:
        """`segments`, for one request: each is looked at once, however often its messages and choices name it."""
        return lru_cache(None)(partial(self.segments, owner=owner))

    def expire(self, cache_id: str, owner: str = "") -> None:
        """With its KV, as far as nobody else has the same text within the same border. Raises StoreError where its pins
        cannot be taken away: it is still there then.
        """
        self._drop(self._rows.get(cache_id, owner))

    def sweep(self) -> int:
        """End all whose time has come -> how many. One whose pins cannot be taken away comes again."""
        expired = self._rows.expired()
        for one in expired:
            try:
                with suppress(NotFound):  # another process was quicker
                    self._drop(one)
            except StoreError as error:
                log.warning("the context cache %s is still there, though its time has come: %s", one.id, error)
        return len(expired)

    # -- parts ------------------------------------------------------------------------------------------------------

    def _ids(self, request: ContextRequest) -> list[tuple[int, ...]]:
        if request.tokens:
            return [tuple(ids) for ids in request.tokens]
        template = self._models.template
        texts = [check_text("a text of the context cache", text) for text in request.texts]
        if request.split is None:
            return [template.chunk(text).ids for text in texts]
        splitter = self._models.splitter(request.split, self._settings.chunk_limits)
        pieces = (text[piece.start : piece.end] for text in texts for piece in splitter.split(text))
        return [template.chunk(piece).ids for piece in pieces]

    def _check(self, cache: ChunkCache, system: System, chunks: Sequence[Chunk]) -> None:
        if not 0 < len(chunks) <= MOST_CHUNKS:
            raise PromptError(f"{len(chunks):,} chunks: a context cache has 1 to {MOST_CHUNKS:,}")
        for chunk in chunks:
            cache.engine.check_tokens(chunk.ids)
            cache.engine.check_length(len(system) + len(chunk))

    def _check_room(self, owner: str, nbytes: int, pinned: bool) -> None:
        own, most = self._rows.all(owner), self._settings.context_caches
        if len(own) >= most:
            raise ConfigError(f"there are {len(own)} context caches, and {most} may be there: expire some")
        used, budget = sum(one.nbytes for one in own), self._settings.context_bytes
        if used + nbytes > budget:
            raise ConfigError(
                f"{nbytes:,} bytes of KV beside {used:,} of other context caches, and {budget:,} may be there: expire "
                "some, or give less text"
            )
        disk = self._models.disk_bytes
        if pinned and disk and sum(one.nbytes for one in self._rows.all(None) if one.pinned) + nbytes > PINNED * disk:
            raise ConfigError(f"pinned context caches may have {PINNED:.0%} of the disk's budget: pin less")

    def _capture(
        self, cache: ChunkCache, system: System, chunks: Sequence[Chunk], made: ContextCache, ttl: float | None
    ) -> None:
        """Whoever deletes it meanwhile drops what is there then, and knows nothing of what comes."""
        pins = [system_address(made.model, system.hash, system.border)] if made.pinned else []
        with ExitStack() as failed:
            failed.callback(self._undo, made, {chunk.hash for chunk in chunks}, pins)
            for key in pins:
                cache.store.pin(key, owner=_pinner(made), seconds=ttl)
            for variant in cache.ingest(system, chunks):
                if made.pinned:
                    pins.append(variant.key)
                    cache.store.pin(variant.key, owner=_pinner(made), seconds=ttl)
                self._rows.check_there(made.id)  # soon
            with self._lock:  # and for certain: nobody is amid deleting it
                self._rows.check_there(made.id)
            failed.pop_all()

    def _undo(self, made: ContextCache, chunks: set[str], pins: Sequence[VariantKey]) -> None:
        """Of what could not be made, where not even its pins may go: nobody has been told its id."""
        try:
            self._drop(made, chunks, pins)
        except StoreError as error:
            log.warning("what was pinned for a context cache that was not made stays: %s", error)
            with suppress(NotFound):
                self._rows.delete(made.id, None, chunks)

    def _drop(self, cache: ContextCache, made: set[str] | None = None, pins: Sequence[VariantKey] = ()) -> None:
        """Pins first, which name it: behind its row nobody could take them away. Then SQL: from then on nobody finds
        it, and what its end leaves to be done about everybody's texts, with what documents have left to it, is known.

        `made`: its chunks, where it could not be made, with `pins`, also of no entry. Its row may have gone meanwhile.
        """
        orphans, kept = self._library.catalog.orphans, set[str]()
        with self._lock:
            own = self._texts(cache) if made is None else made
            if cache.pinned and may_hold_kv(self._models):
                self._unpin(cache, own, pins)
            with nullcontext() if made is None else suppress(NotFound):
                self._rows.delete(cache.id, None, own)
            others = self._rows.chunks_within(cache.border).values()  # now: another process may have ended one at once
            gone = own - _hashes(chunk for chunks in others for chunk in chunks)
            if not cache.border:
                gone &= orphans.unused(gone)
            if may_hold_kv(self._models):
                loss = self._drop_within(cache, gone) if cache.border else self._drop_everybodys(cache, gone)
                kept = loss.kept
                if loss.fault is not None:
                    told = "KV of the context cache %s was not deleted, `ragcache cache prune` does it: %s"
                    log.warning(told, cache.id, loss.fault)
            if not cache.border:
                with suppress(CatalogError):  # others write: then it is done again
                    orphans.settle_cache(cache.id, kept)

    def _texts(self, cache: ContextCache) -> set[str]:
        return _hashes(self._rows.chunks_within(cache.border, [cache.id]).get(cache.id, []))

    def _unpin(self, cache: ContextCache, chunks: Iterable[str], pins: Sequence[VariantKey]) -> None:
        """Behind whatever System segment it was made: another may have been set since."""
        store, model = self._models.store, cache.model
        keys = [key for one in chunks for key in store.everywhere(VariantKey(model, "", (), one, border=cache.border))]
        own = [key for key in keys if key.fingerprint == model]
        systems = {self._models.template.system().hash, *(key.system for key in own)}
        for key in {*pins, *own, *(system_address(model, one, cache.border) for one in systems)}:
            store.pin(key, False, owner=_pinner(cache))

    def _drop_everybodys(self, cache: ContextCache, gone: set[str]) -> KvLoss:
        """As if the last document had gone that had these texts."""
        known = Identity(cache.model, self._models.template.system().hash)
        loss = KvLoss()
        with loss.noting(gone):
            identities = {known, *identities_to_drop(self._library, self._models)}
            loss = drop_kv(self._models, identities, gone, shared=EverybodysContexts(self._library))
        return loss

    def _drop_within(self, cache: ContextCache, gone: set[str]) -> KvLoss:
        """Of whatever engine and behind all System segments, and what was computed over it."""
        system, loss = self._models.template.system().hash, KvLoss()
        for chunk in gone:
            with loss.noting([chunk]):
                self._models.store.drop_chunk(cache.model, system, chunk, cache.border, elsewhere=True)
        with loss.noting(gone):
            for key in self._models.store.seeing(gone) if gone else ():
                if key.border == cache.border:
                    self._models.store.delete(key)
        return loss


class Sweeper:
    """Ends caches whose time has come, on a thread of its own, until it is closed."""

    def __init__(self, contexts: Contexts):
        self._contexts = contexts
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name="ragcache-sweep", daemon=True)
                self._thread.start()

    def close(self) -> None:
        with self._lock:
            self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(SWEEP_S):
            try:
                self._contexts.sweep()
            except RagcacheError as error:
                log.warning("context caches whose time has come are still there: %s", error)


def _hashes(chunks: Iterable[Any]) -> set[str]:
    return {name for name, _ in chunks}


def _pinner(cache: ContextCache) -> str:
    return f"context:{cache.id}"
