"""Whose every file of the KV cache is; freeing what it holds for nobody, and putting aside what is bad.

A running ingest has written KV whose chunks SQL does not show yet. Two things keep it: the ingest locks of all
collections are held, so that no ingest runs into them, and what has been written or read since the start stays, which
is all that an ingest into a collection made meanwhile can have. The locks are those of this catalog: if several
catalogs share one cache folder, each takes the others' KV for unreferenced, and it is computed again when it is needed.

A text has one token hash for all System segments of an engine, so it is known of KV behind any of these whether a
collection has the text still. Another engine may have another tokenizer: of its KV that is not known.
"""

from __future__ import annotations

import time
from collections.abc import Collection as Hashes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain

from app.library import Library
from app.library.catalog.records import Collection
from app.library.identities import current_identity
from app.library.kv import (
    AROUND,
    EverybodysContexts,
    FileTally,
    Shelf,
    border_around,
    context_hashes,
    families_of,
    has_kv,
)
from app.library.kv_following import KvFollowing
from app.library.kv_removal import drop_kv, drop_prefixes
from app.models import Models
from app.settings import Settings
from ragcache.address import system_address
from ragcache.errors import PromptError, RagcacheError
from ragcache.store.findings import BUCKET, DISK, RAM, Flaw, TierStats
from ragcache.store.folder import CacheFolder, Item, engine_name
from ragcache.store.frame import read_seen
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.sweep import usage

QUARANTINE_AGE = timedelta(days=7)
LISTING_S = 10.0  # some 50,000 names at 50 ms


@dataclass
class Census:
    """Files by what may become of them."""

    live: list[Item] = field(default_factory=list)  # of chunks and context caches that are there, and of the System
    dead: list[Item] = field(default_factory=list)  # of the settings' model, behind any System; no chunk has them
    other: list[Item] = field(default_factory=list)  # of other models and System segments, and prefixes of prompts
    unreadable: list[Item] = field(default_factory=list)


def take_census(library: Library, models: Models) -> Census:
    """All files of the cache. "Live" is what a chunk of this catalog refers to."""
    census = Census()
    if not has_kv(library.settings):
        return census
    identity, folder = current_identity(models), CacheFolder(library.settings.kv_folder)
    texts = _Texts(library, models)
    families = set(families_of(identity, texts.known("")))
    # The System segment's own: no System stands before it.
    families.add(system_address(identity.fingerprint, identity.system).family)
    for item in folder.items():
        if item.engine != engine_name(identity.fingerprint):
            census.other.append(item)
        elif item.family in families:
            census.live.append(item)
        elif (key := folder.key(item)) is None:
            census.unreadable.append(item)
        elif texts.serves_nobody(key.border):
            census.dead.append(item)
        elif (
            key.fingerprint != identity.fingerprint or not key.system
        ):  # another one, or another System's own, or a prefix
            census.other.append(item)
        elif not texts.has(key.border, {key.chunk}):
            census.dead.append(item)
        else:
            (census.live if key.system == identity.system else census.other).append(item)
    return census


def _traces(library: Library, models: Models, census: Census) -> list[Item]:
    """KV of chunks that are there, computed over some that are not: a process that was killed may have left it."""
    if not census.live and not census.other:
        return []
    engine = engine_name(current_identity(models).fingerprint)
    items = chain(census.live, (item for item in census.other if item.engine == engine))
    texts, found = _Texts(library, models), list[Item]()
    for item in items:
        with suppress(OSError):  # another user's, or the disk fails; what is not told may be there still
            if not texts.has(*read_seen(item.path)):
                found.append(item)
    return found


class _Texts:
    """Those that KV may have a part of, by their token hashes: within the border around a collection its own, else all
    that a collection or a context cache has.
    """

    def __init__(self, library: Library, models: Models):
        self._library, self._models = library, models
        self._collections = {border_around(one): one for one in library.catalog.collections.all()}
        self._known, self._all = dict[str, set[str]](), dict[str, set[str]]()  # by border

    def serves_nobody(self, border: str) -> bool:
        """Around a collection that is gone, or one by a uid that it had before it was embedded again or restored."""
        return border.startswith(AROUND) and border not in self._collections

    def known(self, border: str) -> set[str]:
        """As SQL has them: by the tokenizer that each document was ingested with."""
        if border not in self._known:
            hashes, own = self._library.catalog.chunks.hashes, self._collections.get(border)
            self._known[border] = hashes(own) if own else hashes() | context_hashes(self._library)
        return self._known[border]

    def has(self, border: str, chunks: Hashes[str]) -> bool:
        """All of these. Where documents were ingested with another tokenizer than today's, answers cache chunks under
        other hashes, so before any is called gone the texts themselves are tokenised.
        """
        if self.serves_nobody(border):
            return False
        of = border if border in self._collections else ""
        if self.known(of).issuperset(chunks):
            return True
        if of not in self._all:
            self._all[of] = self.known(of).union(*map(self._spoken, self._of(of)))
        return self._all[of].issuperset(chunks)

    def _of(self, border: str) -> Iterable[Collection]:
        return [self._collections[border]] if border else self._collections.values()

    def _spoken(self, collection: Collection) -> Iterator[str]:
        """Token hashes of its chunks by the tokenizer of the settings."""
        for _, text in self._library.catalog.chunks.texts(collection):
            with suppress(PromptError):  # blank: never part of a prompt
                yield self._models.template.chunk(text).hash


def tiers(settings: Settings, census: Census) -> list[TierStats]:
    """As a store that was just opened would tell them: its RAM is empty, the disk holds what was counted."""
    disk = FileTally.of(chain(census.live, census.dead, census.other, census.unreadable))
    sizes = [(RAM, FileTally(), settings.ram_bytes), (DISK, disk, settings.disk_bytes)]
    return [TierStats(name, kv.entries, kv.nbytes, budget, 0, 0, 0, 0) for name, kv, budget in sizes if budget]


def bucket_tier(settings: Settings) -> tuple[TierStats, bool]:
    """What all machines have in the bucket, and whether that is all: a large one is listed only so long. Raises
    ConfigError and RemoteError.
    """
    bucket = Bucket(settings.remote)
    told = bucket.submit(usage(bucket, seconds=LISTING_S)).result()
    return TierStats(BUCKET, told.entries, told.nbytes, settings.remote_bytes, 0, 0, 0, 0), told.complete


@dataclass(frozen=True)
class CollectionShare:
    """What a collection has in the cache for the model of the settings. Collections may share chunks."""

    collection: Collection
    chunks: int  # distinct
    cached: int  # of them, with any KV that serves
    kv: FileTally  # also within the border around the collection, or of that alone
    pinned: FileTally  # of it


def shares(
    library: Library,
    models: Models,
    items: Iterable[Item],
    collections: Sequence[Collection] | None = None,
    bordered: bool = False,
) -> list[CollectionShare]:
    """Of all `items` of the cache, or those of a census that are live; of all collections, or these. `bordered`: for
    those whom KV within the border around a collection serves alone, and who are told of no other.
    """
    all_items = list(items)
    shelf, pinned = Shelf(all_items), Shelf(one for one in all_items if one.pinned)
    identity = current_identity(models) if all_items else None
    found = []
    for collection in library.catalog.collections.all() if collections is None else collections:
        hashes = library.catalog.chunks.hashes(collection)
        inside, everybodys = set[str](), set[str]()
        if identity is not None:
            inside = set(families_of(identity, hashes, border_around(collection)))
            everybodys = set(families_of(identity, hashes))
        serving, seen = (inside, inside) if bordered else (everybodys, inside | everybodys)
        cached = sum(one in shelf.entries for one in serving)
        found.append(CollectionShare(collection, len(hashes), cached, shelf.of(seen), pinned.of(seen)))
    return found


@dataclass(frozen=True)
class Pruned:
    """What went, or would go."""

    unreferenced: FileTally
    other: FileTally  # of other models and System segments
    temporaries: int
    quarantined: int
    dry: bool


@dataclass(frozen=True)
class Verified:
    entries: int  # that were there
    nbytes: int
    flaws: tuple[Flaw, ...]  # quarantined now


def prune(
    library: Library,
    models: Models,
    *,
    others: bool = False,
    dry: bool = False,
    quarantine_age: timedelta = QUARANTINE_AGE,
) -> Pruned:
    """`others` takes all KV of other models and System segments too. Raises CatalogError while an ingest runs."""
    started = time.time_ns()
    folder = CacheFolder(library.settings.kv_folder)
    if not has_kv(library.settings) and not folder.quarantined(started):
        if not dry:
            _finish_removals(library, models)
        return Pruned(FileTally(), FileTally(), 0, 0, dry)
    with nullcontext() if dry else library.catalog.alone(*library.catalog.collections.all()):
        census = take_census(library, models)
        traces = dict.fromkeys(_traces(library, models, census))
        dead, other = [*census.dead, *traces], [item for item in census.other if others and item not in traces]
        old = folder.quarantined(started - int(quarantine_age.total_seconds() * 1e9))
        if dry:
            return Pruned(FileTally.of(_loose(dead)), FileTally.of(_loose(other)), folder.temporaries(), len(old), dry)
        lost = {key.chunk for item in traces if (key := folder.key(item))}
        for collection in library.catalog.collections.all() if lost else ():  # whose next ingest computes it again
            library.catalog.orphans.lose(collection, lost)
        gone, gone_others = folder.remove(dead, started), folder.remove(other, started)
        swept, discarded = folder.sweep(), folder.discard(old)
        _finish_removals(library, models)
    return Pruned(FileTally.of(gone), FileTally.of(gone_others), swept, discarded, dry)


def _finish_removals(library: Library, models: Models) -> None:
    """What a process that was killed has left of collections that are gone goes from the bucket too, of whatever
    engine, and their indexes; and no index file tells of a deleted text. Raises StoreError, MaintenanceError where
    indexes cannot be removed, and RetrieverError where one cannot be written; the first of them where several do.
    """
    from app.library.indexes import forget_all  # it imports the models' libraries

    orphans = library.catalog.orphans
    abandoned = orphans.abandoned()
    left = orphans.unused(abandoned)
    loss = drop_kv(models, (), left, shared=EverybodysContexts(library))
    if abandoned:
        with loss.noting(abandoned):
            drop_prefixes(models)
    orphans.forget(abandoned - loss.kept)
    with loss.noting(()):
        KvFollowing(library, models).follow()
    try:
        library.sweep_indexes()
        forget_all(library)
    except RagcacheError as error:
        if loss.fault is None:
            raise
        raise loss.fault from error
    if loss.fault is not None:
        raise loss.fault


def verify(library: Library, models: Models) -> Verified:
    """Bad files are put aside; an answer computes them again."""
    if not has_kv(library.settings):
        return Verified(0, 0, ())
    store = models.store
    kept = store.kept
    return Verified(kept.entries, kept.nbytes, tuple(store.verify()))


def _loose(items: list[Item]) -> list[Item]:
    return [item for item in items if not item.pinned]
