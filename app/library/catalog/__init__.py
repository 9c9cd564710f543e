"""The catalog: what SQL holds, which is the truth. Everything else (indexes, KV) follows it and can be made again.

    from app.library.catalog import open_catalog

    with open_catalog(settings) as catalog:
        collection = catalog.collections.find(name) or catalog.collections.create(name, embedder=…, …)

| part | methods |
|---|---|
| `collections` | `create`, `get`, `find`, `all`, `rename`, `delete`, `totals`, `check_embedder`, `reembed`, `set_…` |
| `documents` | `states` (one query), `replace`, `fail`, `touch`, `delete`, `get`, `find`, `all`, `listed`, `layout` |
| `chunks` | `found` (by ids, with documents), `of_document`, `hashes`, `layout`, `retokenize` |
| `orphans` | texts that nobody has any more, and whose KV is still to go: `of`, `unused`, `settle`, `forget` |
| `departures` | a log of these, by which each machine deletes the KV that it has: `behind`, `after`, `newest` |
| `sentences` | the vectors of the chunks' sentences: `lacking`, `add`, `add_rest`, `unfinished`, `begun` |
| `order` | where documents stand, and what they are computed behind: `standing`, `places`, `neighbours`, `set`, … |
| `conversations` | `create`, `get`, `all`, `rename`, `delete`, `add` (messages), `messages` |
| `runs` | `start`, `finish`, `newest` |
| `keys` | of a server: `create`, `get`, `all`, `any`, `revoke`, `verify`, `known` |
| `jobs` | `create`, `get`, `all`, `cancel`, `retry`, `forget`; of workers `claim`, `renew`, `progress`, `finish`, … |
| `context_caches` | `create`, `get`, `chunks`, `all`, `prolong`, `delete`, `expired` |
| `cache_history` | what the cache was good for: `add`, `captured`, `points`, `ever`, `reused` |
| `write_uses()` | when keys and context caches were last used, behind those who use them |
| `source(collection)` | what the indexes of `retriever` follow |
| `alone(*collections)` | a block in which no other process works on them, on no machine |
| `alone_as(collection)` | the same, for that collection as it is then |
| `alone_with(name)` | the same, for the collection that has the name then |

Every method is one transaction, lasts when it returns, and raises CatalogError. `documents.replace(collection,
DocumentRecord, [ChunkRecord])` makes a document visible at once, or its new version instead of the old
one, whose id it keeps; chunks are new ones, with ids never given before. (Of a long one `sentences.add_rest` writes
what is left of its sentences.) It returns the new ids, and in `removed` what went: `orphans` are the token hashes that
no chunk of any collection has any more, whose KV the caller deletes, who says then that they are settled
(`orphans.py`). With PostgreSQL they are looked for after the transaction: what is left where that fails, the next
ingest into the collection finds, or pruning, like what a killed process leaves.
`documents.fail` leaves a failed document without chunks; `attempts` counts how often.

Any string can be stored: NUL and lone surrogates too. Records (`records.py`, `serving_records.py`) are frozen, and know
no database.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from sqlalchemy import func, select

from app.errors import CatalogError
from app.library.catalog.cache_history import CacheHistory
from app.library.catalog.chunks import Chunks
from app.library.catalog.collections import Collections, IngestRuns
from app.library.catalog.context_caches import ContextCaches
from app.library.catalog.conversations import Conversations
from app.library.catalog.database import BESIDE, Database, database_url, refuse_network
from app.library.catalog.departures import CachePlace, Departures
from app.library.catalog.documents import Documents
from app.library.catalog.failures import catalog_failures
from app.library.catalog.jobs import Jobs
from app.library.catalog.keys import Keys
from app.library.catalog.locks import Waiting, discard, held
from app.library.catalog.order import Order
from app.library.catalog.orphans import Orphans
from app.library.catalog.records import Collection
from app.library.catalog.schema import upgrade
from app.library.catalog.sentences import Sentences
from app.library.catalog.tables import CHUNKS, COLLECTIONS, DOCUMENTS, RETIREMENTS
from app.settings import Settings

if TYPE_CHECKING:
    from app.library.catalog.source import CatalogSource

log = logging.getLogger(__name__)


class Catalog:
    """Safe to share between threads, and with other processes over the same database; a fork connects anew.

    Every method is one transaction: it is done and lasts when the method returns, or nothing has happened. Methods
    raise CatalogError when the database cannot be used or what they are asked for is not there.
    """

    def __init__(self, database: Database, kv_folder: Path | None = None):
        self.database = database
        place = CachePlace(kv_folder)
        self.collections = Collections(database)
        self.documents = Documents(database)
        self.chunks = Chunks(database)
        self.sentences = Sentences(database)
        self.orphans = Orphans(database, place)
        self.departures = Departures(database, place)
        self.order = Order(database)
        self.conversations = Conversations(database)
        self.runs = IngestRuns(database)
        self.keys = Keys(database)
        self.jobs = Jobs(database)
        self.context_caches = ContextCaches(database, place)
        self.cache_history = CacheHistory(database)

    @property
    def where(self) -> str:
        """The database in words, without user, password and options."""
        return self.database.where

    def source(self, collection: Collection) -> CatalogSource:
        """The collection as the indexes of `retriever` follow it."""
        from app.library.catalog.source import CatalogSource  # it imports numpy

        return CatalogSource(self.database, collection)

    @contextmanager
    def alone(self, *collections: Collection, waiting: Waiting | None = None) -> Iterator[None]:
        """A block in which no other process works on the collections. Raises CollectionBusy at once where one does,
        unless there is `waiting`, which is told so before the wait.
        """
        with held(self.database, collections, waiting, self._holder):
            yield

    @contextmanager
    def alone_as(self, collection: Collection, waiting: Waiting | None = None) -> Iterator[Collection]:
        """The same for one, as it is when its lock is held: it may be renamed before. Raises NotFound where it has been
        deleted.
        """
        wanted = self.collections.current(collection)  # one that is gone has no lock any more, and is given none
        with self.alone(wanted, waiting=waiting):
            yield self.collections.current(wanted)

    @contextmanager
    def alone_with(self, name: str, waiting: Waiting | None = None) -> Iterator[Collection]:
        """The same for the collection that has the name when its lock is held, as it is then. The one that had it
        before may be deleted, and another made, in between. Raises CatalogError where there is none.
        """
        while True:
            wanted = self.collections.get(name)
            with self.alone(wanted, waiting=waiting):
                found = self.collections.get(name)
                if found.id == wanted.id:
                    yield found
                    return

    def write_uses(self) -> None:
        """When keys and context caches were last used: for a thread that nobody waits for. Else it is done at the
        end.
        """
        self.keys.uses.write()
        self.context_caches.uses.write()

    def discard_lock(self, collection: Collection) -> None:
        """Of a collection that is gone, behind its `alone`. Whoever waits for it finds out then."""
        discard(self.database, collection.id)

    def _holder(self, collection: Collection) -> str:
        """An ingest writes down its process. Others that work on a collection do not."""
        newest = self.runs.newest(collection, 1)
        if newest and newest[0].state == "running":
            return f"another ingest (process {newest[0].pid}, since {newest[0].started:%Y-%m-%d %H:%M} UTC)"
        return "another process"

    def close(self) -> None:
        self.write_uses()
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def check_integrity(self) -> None:
        """What every transaction must leave behind. For tests: it reads all chunks."""
        with self.database.reading() as connection:
            for row in connection.execute(select(COLLECTIONS)):
                own = CHUNKS.c.collection_id == row.id
                count, high = connection.execute(select(func.count(), func.max(CHUNKS.c.id)).where(own)).one()
                assert row.live == count, f"{row.name}: {row.live} live chunks are counted, there are {count}"
                assert row.high >= (high or 0), f"{row.name}: chunk {high} is above {row.high}"
                last = select(func.max(RETIREMENTS.c.number)).where(RETIREMENTS.c.collection_id == row.id)
                assert row.retired == (connection.scalar(last) or 0), f"{row.name}: retired {row.retired}"
            undead = select(CHUNKS.c.id).join(RETIREMENTS, RETIREMENTS.c.chunk_id == CHUNKS.c.id)
            assert connection.scalars(undead).all() == [], "chunks that are retired and still there"
            of_failed = select(CHUNKS.c.id).join(DOCUMENTS, DOCUMENTS.c.id == CHUNKS.c.document_id)
            of_failed = of_failed.where(
                (DOCUMENTS.c.state != "ready") | (DOCUMENTS.c.collection_id != CHUNKS.c.collection_id)
            )
            assert connection.scalars(of_failed).all() == [], "chunks of documents that are not ready, or elsewhere"


def open_catalog(settings: Settings, busy_seconds: float = 30.0) -> Catalog:
    """The catalog of the settings; made where there is none, and brought to the newest schema.

    `busy_seconds` is how long a change waits for those of others.
    """
    database = Database(database_url(settings), busy_seconds, threads=settings.serve_concurrent + BESIDE)
    try:
        backup = upgrade(database, settings.backups)
    except CatalogError:
        database.close()
        raise
    if backup is not None:
        log.info("the schema of %s is new; the old file is kept as %s", database.where, backup)
    return Catalog(database, settings.kv_folder)


@contextmanager
def catalog_to_look_at(settings: Settings) -> Iterator[Catalog]:
    """The same, but none is made: where there is no SQLite file, an empty one in a folder that goes after the block."""
    url = database_url(settings)
    with ExitStack() as stack:
        if url.drivername == "sqlite" and not _is_there(Path(url.database or "")):
            with catalog_failures("in a folder for temporary files", OSError):
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="ragcache-")))
            settings = settings.model_copy(update={"data_dir": folder, "database_url": None})
        yield stack.enter_context(open_catalog(settings))


def _is_there(path: Path) -> bool:
    refuse_network(path)
    with catalog_failures(str(path), OSError):
        try:
            path.stat()
        except FileNotFoundError:
            return False
        return True
