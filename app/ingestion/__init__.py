"""From files to documents that can be asked about: read, cut, embedded, indexed, with their KV.

    from app.ingestion import Ingest, IngestOptions

    with opened(settings) as (library, models):
        collection = library.collection_or_new("papers")
        result = Ingest(library, models, collection, IngestOptions(prune=True)).run([Path("papers")])
        print(result.added, result.failed)

A document becomes visible as a whole, in one transaction; an ingest that is stopped at any point goes on where it was
when it is run again. Importing this brings no model library, nor does an ingest that finds nothing new.

| module | does |
|---|---|
| `survey` | which files are new, changed, gone |
| `readers`, `worker`, `reading` | files to texts, in processes of their own |
| `chunking`, `boundaries` | texts to chunks |
| `writing`, `kv` | chunks to embeddings, KV and rows; and what goes with them |
| `ingest` | all of it, under the collection's lock |
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.ingestion.ingest import Ingest
    from app.ingestion.records import Failure, IngestOptions, IngestProgress, IngestResult

_PLACES = {
    "Failure": "records",
    "Ingest": "ingest",
    "IngestOptions": "records",
    "IngestResult": "records",
    "IngestProgress": "records",
}
__all__ = ["Failure", "Ingest", "IngestOptions", "IngestProgress", "IngestResult"]


def __getattr__(name: str) -> object:
    """Loaded on first use: a reading process imports this package too, and has no use for the catalog."""
    if name not in _PLACES:
        raise AttributeError(f"module 'app.ingestion' has no attribute {name!r}")
    return getattr(import_module(f"app.ingestion.{_PLACES[name]}"), name)
