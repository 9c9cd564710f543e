"""The indexes of a collection: opened to be searched, or without the models that a search takes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from app.errors import MaintenanceError
from app.library import Library
from app.library.catalog.records import Collection
from app.models import Models
from retriever import IntArray
from retriever.keyword_index import KeywordIndex
from retriever.searcher import Searcher
from retriever.vector_index import VectorIndex


def catch_up(library: Library, collection: Collection) -> None:
    """Let the index files forget what was deleted. Where there are none, there is nothing to forget."""
    if library.index_folder(collection).is_dir():
        _each(library, collection, rebuild=False)


def rebuild(library: Library, collection: Collection) -> None:
    """Both indexes anew, from the embeddings and texts in SQL."""
    _each(library, collection, rebuild=True)


def discard(library: Library, collection: Collection) -> None:
    """Remove the index files of a collection that is gone, or was embedded again."""
    folder = library.index_folder(collection)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise MaintenanceError(f"cannot remove the old indexes in {folder}: {error}. Delete the folder") from error


def open_searcher(library: Library, models: Models, collection: Collection) -> Searcher:
    """Over both indexes, which follow the catalog by themselves."""

    def texts(ids: IntArray) -> Sequence[str]:
        found = {one.chunk.id: one.chunk.text for one in library.catalog.chunks.found(ids)}
        return [found.get(one, "") for one in ids.tolist()]  # a chunk may be deleted while a question is asked

    return Searcher(
        library.catalog.source(collection),
        *_indexes(library, collection),
        models.embedder.embed_query,
        models.reranker,
        texts,
    )


def _indexes(library: Library, collection: Collection) -> tuple[VectorIndex, KeywordIndex]:
    folder = library.index_folder(collection)
    return VectorIndex(collection.dimension, collection.embedder_fingerprint, folder), KeywordIndex(folder)


def _each(library: Library, collection: Collection, *, rebuild: bool) -> None:
    source = library.catalog.source(collection)
    for index in _indexes(library, collection):
        if rebuild:
            index.rebuild(source)
        else:
            index.catch_up(source)
        index.save()
