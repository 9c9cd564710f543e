"""Libraries with documents in them, for the tests of what an operator does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.library import Library
from app.library.catalog.records import ChunkRecord, Collection, DocumentRecord
from app.library.kv import variants_of
from app.loaders.base import Page
from app.models import Models
from app.settings import Settings, load_settings

DIMENSION = 4
BOOKS = {
    "/books/rye.txt": ("Rye flour takes more water.", "The dough rests overnight."),
    "/books/lamps.txt": ("The lamp was lit in 1855.", "Its keeper lived alone.", "Ships were warned by a bell."),
}


def make_settings(model: Path, folder: Path, **changes: Any) -> Settings:
    values = {"dtype": "float32", "device": "cpu", "data_dir": folder / "data", "cache_dir": folder / "cache"}
    return load_settings(None, model=str(model), **(values | changes))


def reopened(library: Library, models: Models, **changes: Any) -> tuple[Library, Models]:
    """As another process sees them: with nothing in RAM, and perhaps other settings that leave the model as it is."""
    settings = library.settings.model_copy(update=changes)
    other = Models(settings, models.language)
    return Library(settings, library.catalog, other), other


def make_collection(library: Library, name: str = "default", **changes: Any) -> Collection:
    values: dict[str, Any] = {
        "embedder": "old-embedder",
        "embedder_fingerprint": "f" * 32,
        "dimension": DIMENSION,
        "splitter": "auto",
    }
    return library.catalog.collections.create(name, **(values | changes))


def put(
    library: Library, models: Models, collection: Collection, source: str, texts: Sequence[str], *, kv: bool = False
) -> int:
    """A document of these chunks, with their KV where that is wanted; returns its id."""
    chunks, start, whole = [], 0, "\n".join(texts)
    segments = [models.template.chunk(text) for text in texts]
    for text, segment in zip(texts, segments, strict=True):
        end = start + len(text)
        count = models.template.count(text)
        pages = ((1, "page"),)
        chunks.append(ChunkRecord(start, end, text, count, segment.hash, vector(text), ("Part", "One"), pages))
        start = end + 1
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    record = DocumentRecord(
        source, digest, len(whole), 7, "prose", source.rpartition("/")[2], whole, (Page(1, "page", 0, len(whole)),)
    )
    if kv:
        system = models.template.system()
        assert len(list(models.cache.ingest(system, segments))) >= len(segments)
        library.catalog.collections.set_engine(collection, models.language.engine.spec.fingerprint, system.hash)
    return library.catalog.documents.replace(collection, record, chunks).document_id


def fill(
    library: Library,
    models: Models,
    name: str = "default",
    books: Mapping[str, Sequence[str]] = BOOKS,
    *,
    kv: bool = False,
) -> Collection:
    """A collection of books, as an ingest leaves it."""
    collection = make_collection(library, name)
    for source, texts in books.items():
        put(library, models, collection, source, texts, kv=kv)
    return library.catalog.collections.get(name)


def fail(library: Library, collection: Collection, source: str, reason: str) -> None:
    library.catalog.documents.fail(collection, DocumentRecord(source, "0" * 64, 3, 7, "", source, ""), reason)


def vector(text: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    seed = int(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16)
    return np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)


def files(library: Library) -> set[str]:
    """Addresses of all KV on the disk, those of the System segment too."""
    return {path.stem for path in (library.settings.cache_dir / "kv").glob("*/*/*/*.kv")}


def addresses(library: Library, collection: Collection) -> list[str]:
    """Of all KV that a collection's chunks have, in their order."""
    documents = library.catalog.documents.all(collection)
    chunks = [chunk.token_hash for one in documents for chunk in library.catalog.chunks.of_document(one.id)]
    found = variants_of(library, collection, chunks)
    return [variant.key.digest for chunk in chunks for variant in found.get(chunk, ())]


def put_sentences(library: Library, models: Models, source: str, chunks: Sequence[Sequence[str]]) -> list[int]:
    """A document of chunks of these sentences, embedded as an ingest embeds them; returns the ids of its chunks."""
    collection = library.collection_or_new()
    texts = [" ".join(sentences) for sentences in chunks]
    vectors, packed = models.embedder.embed(texts), models.sentences.packed(texts)
    records, start = [], 0
    for text, embedding, sentences in zip(texts, vectors, packed, strict=True):
        token_hash = hashlib.sha256(text.encode()).hexdigest()
        records.append(ChunkRecord(start, start + len(text), text, 9, token_hash, embedding, sentences=sentences))
        start += len(text) + 1
    whole = "\n".join(texts)
    name = source.rpartition("/")[2]
    record = DocumentRecord(source, hashlib.sha256(whole.encode()).hexdigest(), len(whole), 7, "prose", name, whole)
    return list(library.catalog.documents.replace(collection, record, records).chunk_ids)
