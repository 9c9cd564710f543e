"""The sample documents in a collection, put there without an ingest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from app.answering.pipeline import RagPipeline
from app.library.catalog.records import ChunkRecord, DocumentRecord
from app.loaders.base import Page
from app.samples import read_samples

FOLDER = "/docs"
# The start of a sample that says who designed the lighthouse, and how tall it is: little to compute for a real model.
LIGHTHOUSE = read_samples()["lighthouse.md"].partition("\n\nThree keepers")[0]


def fill(pipeline: RagPipeline, names: Iterable[str], collection: str | None = None, *, kv: bool = True) -> None:
    """Samples by name, as `/docs/NAME`."""
    samples = read_samples()
    put(pipeline, {f"{FOLDER}/{name}": samples[name] for name in names}, collection, kv=kv)


def put(pipeline: RagPipeline, texts: Mapping[str, str], collection: str | None = None, *, kv: bool = False) -> None:
    """Texts by source. Each has two pages, of which the first ends with the first half of the characters."""
    library, models = pipeline.library, pipeline.models
    target = library.collection_or_new(collection)
    splitter = library.splitter(target)
    for source, text in texts.items():
        pieces = splitter.split(text, "markdown")
        own = [text[piece.start : piece.end] for piece in pieces]
        chunks = [models.template.chunk(one) for one in own]
        pages = (Page(1, "page", 0, len(text) // 2), Page(2, "page", len(text) // 2, len(text)))
        records = [
            ChunkRecord(
                piece.start,
                piece.end,
                one,
                models.template.count(one),
                chunk.hash,
                vector,
                piece.heading,
                tuple((page.number, page.label) for page in pages if piece.start < page.end and page.start < piece.end),
            )
            for piece, one, chunk, vector in zip(pieces, own, chunks, models.embedder.embed(own), strict=True)
        ]
        digest = hashlib.sha256(text.encode()).hexdigest()
        document = DocumentRecord(source, digest, len(text), 1, "markdown", source.rpartition("/")[2], text, pages)
        library.catalog.documents.replace(target, document, records)
        if kv:
            for _ in models.cache.ingest(models.template.system(), chunks):
                pass
