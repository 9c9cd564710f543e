"""What searches a collection: its two indexes, which follow the catalog by themselves, and the models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.library.catalog import Catalog
from app.library.catalog.records import Collection
from app.models import Models
from retriever import IntArray
from retriever.keyword_index import KeywordIndex
from retriever.searcher import Searcher
from retriever.vector_index import VectorIndex


def open_searcher(catalog: Catalog, models: Models, collection: Collection, folder: Path) -> Searcher:
    """`folder`: of its indexes."""

    def texts(ids: IntArray) -> Sequence[str]:
        found = {one.chunk.id: one.chunk.text for one in catalog.chunks.found(ids)}
        return [found.get(one, "") for one in ids.tolist()]  # a chunk may be deleted while a question is asked

    return Searcher(
        catalog.source(collection),
        *open_indexes(collection, folder),
        models.embedder.embed_query,
        models.reranker,
        texts,
    )


def open_indexes(collection: Collection, folder: Path) -> tuple[VectorIndex, KeywordIndex]:
    """Without any model."""
    return VectorIndex(collection.dimension, collection.embedder_fingerprint, folder), KeywordIndex(folder)
