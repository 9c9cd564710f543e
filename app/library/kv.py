"""The KV of chunks: what it belongs to, where it is, what is there of a chunk, and its end with the chunk.

It belongs to an engine and a System segment, which are told without loading the model.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from app.library import Library
from app.library.catalog.records import Collection
from app.models import Models
from app.models.folders import BUNDLED, resolve_model
from app.settings import Settings, Wording, expanded
from ragcache.address import lead_address
from ragcache.errors import ConfigError, ModelError, StoreError
from ragcache.store.folder import CacheFolder, Item, engine_name
from ragcache.types import VariantKey

KIND, SYSTEM = "identity", "system"  # of records
GPUS = ("nvidia*", "kfd")  # what their drivers put into /dev
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """Of all KV that one model computes behind one System segment."""

    fingerprint: str
    system: str


def current_identity(models: Models) -> Identity:
    """Of the settings. The weights are read for their checksum alone, and once. Raises ConfigError and ModelError."""
    if loaded := models.loaded:
        return Identity(loaded.engine.spec.fingerprint, models.template.system().hash)
    folder = resolve_model(models.settings.model, models.settings.cache_dir)
    return Identity(_fingerprint(models.settings, folder), _system(models, folder))


def recorded_identities(library: Library) -> set[Identity]:
    """Of the last ingest into each collection."""
    return {
        Identity(one.engine_fingerprint, one.system_hash)
        for one in library.catalog.collections.all()
        if one.engine_fingerprint is not None and one.system_hash is not None
    }


def known_identities(library: Library, models: Models) -> set[Identity]:
    """Whose KV this catalog's chunks may have: of ingests and, where its model is at hand, of answers."""
    try:
        return recorded_identities(library) | {current_identity(models)}
    except (ConfigError, ModelError) as error:
        log.warning("KV of the model of the settings is not looked for: %s", error)
        return recorded_identities(library)


def remembered_identity(models: Models) -> Identity | None:
    """Of the settings, where it was found out before and takes no library to tell."""
    settings = models.settings
    try:
        if not settings.model.startswith(BUNDLED) and not expanded(Path(settings.model)).is_dir():
            return None
        folder = resolve_model(settings.model, settings.cache_dir, convert=False)
        known = _remembered(settings, folder)
    except (ConfigError, ModelError, StoreError):
        return None
    return None if known is None else Identity(known, _system(models, folder))


def remember_identity(models: Models) -> None:
    """Of a model that is loaded, for those who tell of KV without it: with its own settings, and of its files as they
    were when it was.
    """
    loaded = models.loaded
    if loaded is None or loaded.files is None or (facts := _facts(loaded.settings)) is None:
        return
    records, folder, basis = loaded.settings.records, loaded.files.folder, loaded.files.basis
    found, told = {"fingerprint": loaded.engine.spec.fingerprint}, _system_facts(loaded.settings)
    if records.read(KIND, folder, **facts) != found:
        records.write(KIND, folder, found, basis, **facts)
    system = {"hash": loaded.template.system().hash}
    if records.read(SYSTEM, folder, **told) != system:
        records.write(SYSTEM, folder, system, basis, **told)


def _system(models: Models, folder: Path) -> str:
    """The hash of its ids, for which no tokenizer is read where they were told before."""
    if loaded := Models.template.peek(models):
        return loaded.system().hash
    records, facts = models.settings.records, _system_facts(models.settings)
    found = (records.read(SYSTEM, folder, **facts) or {}).get("hash")
    if isinstance(found, str):
        return found
    basis = records.basis(folder)
    made = models.template.system().hash
    records.write(SYSTEM, folder, {"hash": made}, basis, **facts)
    return made


def _system_facts(settings: Settings) -> dict[str, str]:
    told = json.dumps([settings.system_prompt, asdict(Wording())])
    return {"text": hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()}


def _fingerprint(settings: Settings, folder: Path) -> str:
    """As the engine names itself once it is loaded."""
    known = _remembered(settings, folder)
    if known is not None:
        return known
    from app.models.loading import fingerprint_of  # it imports torch

    basis = settings.records.basis(folder)
    found = fingerprint_of(settings, folder)
    if (facts := _facts(settings)) is not None:
        settings.records.write(KIND, folder, {"fingerprint": found}, basis, **facts)
    return found


def _remembered(settings: Settings, folder: Path) -> str | None:
    facts = _facts(settings)
    values = None if facts is None else settings.records.read(KIND, folder, **facts)
    found = None if values is None else values.get("fingerprint")
    return found if isinstance(found, str) else None


def _facts(settings: Settings) -> dict[str, str] | None:
    """What the number format of `auto` hangs on beside the files. None where a GPU may have a say: torch tells."""
    if settings.device != "cpu" and any(any(Path("/dev").glob(name)) for name in GPUS):
        return None
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    features = sorted({line for line in processor.splitlines() if line.startswith(("flags", "Features"))})
    digest = hashlib.sha256("\n".join(features).encode()).hexdigest()
    return {"device": settings.device, "dtype": settings.dtype, "processor": digest}


@dataclass(frozen=True)
class StoredVariant:
    """KV that lies in the cache folder."""

    key: VariantKey
    nbytes: int


def has_kv(settings: Settings) -> bool:
    """Whether anything may be cached: asked before the store, whose libraries take seconds to load."""
    folder = settings.kv_folder
    return folder.is_dir() and any(entry.is_dir() for entry in folder.iterdir())


def may_have_kv(settings: Settings) -> bool:
    """The same of a bucket too, which is not looked into."""
    return bool(settings.remote) or has_kv(settings)


def variants_of(
    library: Library, collection: Collection, hashes: Iterable[str], models: Models | None = None
) -> dict[str, list[StoredVariant]]:
    """By token hash, of the model that the collection was last ingested with, or of that of the settings where only
    answers have computed any; the shortest context first.
    """
    if not has_kv(library.settings):
        return {}
    identity = None if models is None else remembered_identity(models)
    if collection.engine_fingerprint is not None and collection.system_hash is not None:
        identity = Identity(collection.engine_fingerprint, collection.system_hash)
    if identity is None:
        return {}
    folder, found = CacheFolder(library.settings.kv_folder), {}
    for chunk in set(hashes):
        items = folder.family(lead_address(identity.fingerprint, identity.system, chunk).family)
        stored = [StoredVariant(key, item.nbytes) for item in items if (key := folder.key(item)) is not None]
        if stored:
            found[chunk] = sorted(stored, key=lambda one: (len(one.key.context), one.key.digest))
    return found


def families_of(identity: Identity, hashes: Iterable[str], border: str = "") -> Iterator[str]:
    return (lead_address(identity.fingerprint, identity.system, chunk, border).family for chunk in hashes)


def border_around(collection: Collection) -> str:
    """Of the KV that serves those who may not see all collections, and see this one."""
    return f"collection-{collection.uid}"


def identities_to_drop(library: Library, models: Models) -> set[Identity]:
    """Whose KV goes with a chunk; ask before the chunk goes, since its collection may go too."""
    return known_identities(library, models) if may_have_kv(library.settings) else set()


def drop_chunks(models: Models, identities: Iterable[Identity], hashes: Iterable[str], collection: Collection) -> int:
    """Delete all KV of chunks that nobody has any more, this collection the last: everybody's, and that within the
    border around it. Of every engine and System segment by the hash, also of those that nobody names any more, and of
    these `identities` also what a header does not tell; returns how many variants went. Raises StoreError when it has
    tried all.
    """
    chunks = list(hashes)
    if not chunks or not may_have_kv(models.settings):
        return 0
    first, *rest = [*identities] or [Identity("", "")]
    drop, gone = models.store.drop_chunk, 0
    failed: StoreError | None = None
    for chunk, border in product(chunks, ("", border_around(collection))):
        try:
            gone += drop(first.fingerprint, first.system, chunk, border, elsewhere=True)
            gone += sum(drop(one.fingerprint, one.system, chunk, border) for one in rest)
        except StoreError as error:  # one that cannot be deleted keeps no other
            failed = error
    if failed is not None:
        raise failed
    return gone


def drop_traces(models: Models, hashes: Iterable[str]) -> list[VariantKey]:
    """Delete what was computed over chunks that nobody has any more -> what went. It looks at all entries, so call it
    for many chunks together. Raises StoreError.
    """
    chunks = set(hashes)
    return models.store.drop_seeing(chunks) if chunks and may_have_kv(models.settings) else []


def lose_traces(library: Library, models: Models, collection: Collection, hashes: Iterable[str]) -> set[str]:
    """The same -> the chunks that lose KV by it, which the catalog remembers of the collection before they do."""
    gone = set(hashes)
    if not gone or not may_have_kv(models.settings):
        return set()
    lost = {key.chunk for key in models.store.seeing(gone)} - gone
    library.catalog.orphans.lose(collection, lost)
    if more := {key.chunk for key in drop_traces(models, gone)} - gone - lost:  # that were written meanwhile
        library.catalog.orphans.lose(collection, more)
    return lost | more


def context_hashes(library: Library) -> set[str]:
    """Token hashes of all that clients have put into context caches."""
    rows = library.catalog.context_caches.chunks_within(None)
    return {name for chunks in rows.values() for name, _ in chunks}


def drop_prefixes(models: Models) -> None:
    """Delete what is kept of conversations with whatever engine, of which nothing tells whose they were. Raises
    StoreError.
    """
    if may_have_kv(models.settings):
        models.store.drop_prefixes()


@dataclass(frozen=True)
class FileTally:
    """Files and their bytes."""

    entries: int = 0
    nbytes: int = 0

    @classmethod
    def of(cls, items: Iterable[Item]) -> FileTally:
        sizes = [item.nbytes for item in items]
        return cls(len(sizes), sum(sizes))


def with_kv(models: Models, hashes: Iterable[str], border: str = "") -> set[str]:
    """Those of these token hashes that have KV of the model of the settings, which serves within that border."""
    if not has_kv(models.settings):
        return set()
    identity, wanted = current_identity(models), sorted(set(hashes))
    families = dict(zip(families_of(identity, wanted, border), wanted, strict=True))
    there = CacheFolder(models.settings.kv_folder).with_entries(engine_name(identity.fingerprint), families)
    return {families[one] for one in there}


class Shelf:
    """Files of the cache folder, by the families of chunks."""

    def __init__(self, items: Iterable[Item]):
        self.entries: Counter[str] = Counter()
        self._nbytes: Counter[str] = Counter()
        for item in items:
            self.entries[item.family] += 1
            self._nbytes[item.family] += item.nbytes

    def of(self, families: Iterable[str]) -> FileTally:
        there = [one for one in families if one in self.entries]
        return FileTally(sum(self.entries[one] for one in there), sum(self._nbytes[one] for one in there))
