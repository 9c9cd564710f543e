"""The collections of a catalog with the indexes that follow them."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from app.errors import CatalogError, MaintenanceError
from app.library.catalog import Catalog
from app.library.catalog.records import Collection
from app.library.folder_claim import is_own
from app.library.index_memory import IndexMemory
from app.settings import Settings
from ragcache.errors import RagcacheError
from splitter import SplitterError, is_import_path, parse_spec

if TYPE_CHECKING:
    from app.models import Models
    from retriever.derived import DerivedIndex
    from retriever.searcher import Searcher
    from splitter.base import Splitter

LLAMA_INDEX = "llama_index."  # its modules are trusted
INDEXES = "index"  # the folder of indexes
LOG = "reembedding-"  # the beginning of the name of a file in one of them
UID = re.compile("[0-9a-f]{32}")  # of a collection
log = logging.getLogger(__name__)


class Library:
    """Threads may share it. `models` embeds, cuts and reranks for its collections; each index is opened once.

    What works on a collection alone holds its lock: `library.catalog.alone(collection)`.
    """

    def __init__(self, settings: Settings, catalog: Catalog, models: Models):
        self.settings = settings
        self.catalog = catalog
        self._models = models
        self.index_memory = IndexMemory(settings.index_bytes, self._save_leaving)
        self._named = {settings.splitter}  # splitters that the operator has asked for

    def collection(self, name: str | None = None) -> Collection:
        """Raises CatalogError when it is not there, or was embedded by another model."""
        collection = self.catalog.collections.get(name or self.settings.collection)
        self.check_embedder(collection)
        return collection

    def collection_or_new(self, name: str | None = None) -> Collection:
        """For an ingest: made where there is none, with the embedder and the splitter of the settings."""
        wanted = name or self.settings.collection
        found = self.catalog.collections.find(wanted) or self._create(wanted)
        self.check_embedder(found)
        return found

    def check_embedder(self, collection: Collection) -> None:
        """Raises CatalogError when it was embedded by another model than that of the settings."""
        self.catalog.collections.check_embedder(collection, self.settings.embedder, self._models.embedder_fingerprint)

    def splitter(
        self, collection: Collection | None, name: str | None = None, check: Callable[[], None] | None = None
    ) -> Splitter:
        """As the collection was made with, so that all its documents are cut alike, or as a new one would be made; or
        another one with the same limits, by name. `check` ends a split by what it raises. Raises SplitterError.
        """
        if name:
            self.trust_splitter(name)
        if collection is None:
            return self._models.splitter(name or self.settings.splitter, self.settings.chunk_limits, check)
        self._check_trusted(name or collection.splitter, collection)
        return self._models.splitter(name or collection.splitter, collection.splitter_settings, check)

    def trust_splitter(self, spec: str) -> None:
        """The operator has named it, so a collection may be cut by it, whatever module it is in."""
        self._named.add(spec)

    def other_splitter(self, collection: Collection) -> str | None:
        """The one that the catalog has, where this record has another; "" where it has cut nothing."""
        kept = self.catalog.collections.current(collection).splitter
        if kept == collection.splitter:
            return None
        return kept if self.catalog.source(collection).position().high else ""

    def _check_trusted(self, spec: str, collection: Collection) -> None:
        """An import runs code, and whoever can write to the catalog could choose it."""
        path = parse_spec(spec)[0]
        if not is_import_path(path) or path.startswith(LLAMA_INDEX):
            return
        if path not in {parse_spec(one)[0] for one in self._named}:
            raise SplitterError(
                f"collection {collection.name!r} is cut by {path}, whose code an import runs, and it is not of "
                "llama-index: name it by --splitter or RAGCACHE_SPLITTER if you trust it, or choose another one"
            )

    def searcher(self, collection: Collection) -> Searcher:
        """Its indexes, which follow the catalog by themselves. They may be let go for others while the caller has them:
        then they are his alone.
        """
        with self.searching(collection) as searcher:
            return searcher

    @contextmanager
    def searching(self, collection: Collection) -> Iterator[Searcher]:
        """The same, in memory until the end of the block at least."""

        def opens() -> tuple[Searcher, int]:
            from app.library.searchers import open_searcher

            folder = self.index_folder(collection)
            return open_searcher(self.catalog, self._models, collection, folder), _file_bytes(folder)

        with self.index_memory.searching(collection.uid, opens, self._uids) as searcher:
            yield searcher

    def _uids(self) -> set[str]:
        return {one.uid for one in self.catalog.collections.all()}

    def _save_leaving(self, uid: str, searcher: Searcher) -> None:
        """What its files lack would be made again at each opening. Of a collection that is gone none come back."""
        try:
            if uid in self._uids() and searcher.save_if_due() and uid not in self._uids():
                remove_index(index_folder(self.settings, uid))
        except RagcacheError as error:
            log.warning("indexes that were let go were not saved: %s", error)

    def opened_indexes(self, collection: Collection) -> tuple[DerivedIndex, ...]:
        """Those that this process has in memory, if it does."""
        searcher = self.index_memory.peek(collection.uid)
        return () if searcher is None else (searcher.vectors, searcher.keywords)

    def index_folder(self, collection: Collection) -> Path:
        return index_folder(self.settings, collection.uid)

    def sweep_indexes(self) -> None:
        """Remove those that no collection has: of one that another machine has deleted or embedded again, or a process
        that was killed then. None goes where the catalog has not claimed the data folder, since others may have some
        there, and none that another catalog embeds again.
        Raises CatalogError, and MaintenanceError when it has tried all.
        """
        there = [path for path in (self.settings.data_dir / INDEXES).glob("*") if UID.fullmatch(path.name)]
        if not there:
            return
        failed: MaintenanceError | None = None
        try:
            with is_own(self.settings) as own:
                # Behind the look at the folders: who makes one has its collection in the catalog by then.
                known = self._uids()
                for folder in (one for one in there if own and one.name not in known and not self._is_anothers(one)):
                    try:
                        remove_index(folder)
                    except MaintenanceError as error:  # which keeps no other
                        failed = error
        except OSError as error:
            raise MaintenanceError(f"whose the data folder is cannot be told: {error}") from error
        if failed is not None:
            raise failed

    @property
    def log_name(self) -> str:
        """The beginning of the names of this catalog's files there: other ones may have their indexes beside."""
        return f"{LOG}{xxhash.xxh3_64_hexdigest(os.fsencode(self.catalog.where))}-"

    def _is_anothers(self, folder: Path) -> bool:
        return any(not path.name.startswith(self.log_name) for path in folder.glob(f"{LOG}*"))

    def _create(self, name: str) -> Collection:
        settings, limits = self.settings, self.settings.chunk_limits
        self._models.splitter(settings.splitter, limits)  # what cannot be cut should not be there
        try:
            return self.catalog.collections.create(
                name,
                embedder=settings.embedder,
                embedder_fingerprint=self._models.embedder_fingerprint,
                dimension=self._models.embedder.dimension,
                splitter=settings.splitter,
                splitter_settings=limits,
            )
        except CatalogError:
            made = self.catalog.collections.find(name)  # by another process, just now
            if made is None:
                raise
            return made


def _file_bytes(folder: Path) -> int:
    """About as much as an index in memory; 0 where that cannot be told."""
    with suppress(OSError):
        return sum(path.stat().st_size for path in folder.iterdir())
    return 0


def remove_index(folder: Path) -> None:
    """Of a collection that is gone, or was embedded again. Raises MaintenanceError."""
    try:
        while folder.is_dir():
            with suppress(FileNotFoundError):  # another process removes it too
                shutil.rmtree(folder)
    except OSError as error:
        raise MaintenanceError(f"cannot remove the old indexes in {folder}: {error}. Delete the folder") from error


def index_folder(settings: Settings, uid: str) -> Path:
    """Of a collection by its uid. It is made and deleted, so a catalog that others write to must not name any other."""
    if not UID.fullmatch(uid):
        raise CatalogError(f"a collection has the uid {uid!r}, which ragcache never gives: take a copy of the catalog")
    return settings.data_dir / INDEXES / uid
