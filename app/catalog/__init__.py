"""The catalog: what SQL holds, which is the truth. Everything else (indexes, KV) follows it and can be made again.

    from app.catalog import open_catalog

    with open_catalog(settings) as catalog:
        collection = catalog.collections.find(name) or catalog.collections.create(name, embedder=…, …)

| part | methods |
|---|---|
| `collections` | `create`, `get`, `find`, `all`, `rename`, `delete`, `totals`, `check_embedder`, `reembed`, `set_…` |
| `documents` | `states` (one query), `replace`, `fail`, `touch`, `delete`, `get`, `find`, `all`, `listed`, `layout` |
| `chunks` | `found` (by ids, with documents), `of_document`, `hashes`, `layout`, `retokenize` |
| `conversations` | `create`, `get`, `all`, `rename`, `delete`, `add` (messages), `messages` |
| `runs` | `start`, `finish`, `newest` |
| `source(collection)` | what the indexes of `retriever` follow |
| `alone(*collections)` | a block in which no other process works on them, on no machine |
| `alone_with(name)` | the same, for the collection that has the name then |

Every method is one transaction, lasts when it returns, and raises CatalogError. `documents.replace(collection,
DocumentRecord, [ChunkRecord])` makes a document visible at once, or its new version instead of the old
one, whose id it keeps; chunks are new ones, with ids never given before. It returns the new ids, and in `removed`
what went: `orphans` are the token hashes that no chunk of any collection has any more, whose KV the caller may delete.
`documents.fail` leaves a failed document without chunks; `attempts` counts how often.

Any string can be stored: NUL and lone surrogates too. Records (`records.py`) are frozen, and know no database.
"""

from __future__ import annotations

from app.catalog.catalog import Catalog, open_catalog
from app.catalog.records import (
    Box,
    ChunkRecord,
    Collection,
    CollectionTotals,
    Document,
    DocumentLayout,
    DocumentRecord,
    FileState,
    Found,
    IngestRun,
    Listed,
    Message,
    NewMessage,
    PageName,
    Removed,
    Replaced,
    StoredChunk,
    StoredConversation,
)
from app.errors import CatalogError, CollectionBusy

__all__ = [
    "Box",
    "Catalog",
    "CatalogError",
    "ChunkRecord",
    "Collection",
    "CollectionBusy",
    "CollectionTotals",
    "Document",
    "DocumentLayout",
    "DocumentRecord",
    "FileState",
    "Found",
    "IngestRun",
    "Listed",
    "Message",
    "NewMessage",
    "PageName",
    "Removed",
    "Replaced",
    "StoredChunk",
    "StoredConversation",
    "open_catalog",
]
