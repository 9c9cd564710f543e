"""What crosses the border of the catalog: frozen records, none of which knows the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from app.loaders.base import Line, Page

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from retriever.sentences import Packed

Vectors: TypeAlias = "npt.NDArray[np.float32]"
PageName = tuple[int, str]  # number, label: page, slide, sheet or chapter
Box = tuple[int, float, float, float, float]  # page, x0, y0, x1, y1
Span = tuple[int, int]
Spans = tuple[tuple[Span, ...], tuple[Span, ...]]  # in the document, of a chunk's pages and of its boxes

State = Literal["ready", "failed"]
Role = Literal["user", "assistant", "system"]
RunState = Literal["running", "done", "failed", "interrupted"]


@dataclass(frozen=True)
class Collection:
    """Documents that are embedded alike. `uid` names the folder of its indexes, and changes when all is re-embedded."""

    id: int
    uid: str
    name: str
    embedder: str
    embedder_fingerprint: str
    dimension: int
    engine_fingerprint: str | None
    system_hash: str | None
    splitter: str
    splitter_settings: Mapping[str, Any]
    created: datetime
    retrieval: Mapping[str, Any] | None = None  # what was learnt of how its chunks are found
    fidelity: Mapping[str, Any] | None = None  # what was measured of how far answers over its KV are off


@dataclass(frozen=True)
class DocumentRecord:
    """A document to be stored. `source` is an absolute path or a URI, `content_hash` the sha256 of the file."""

    source: str
    content_hash: str
    size: int
    mtime_ns: int
    kind: str
    title: str
    text: str
    pages: tuple[Page, ...] = ()
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, eq=False)
class ChunkRecord:
    """A chunk to be stored: `document.text[start:end] == text`. `embedding` is float32 [dimension]."""

    start: int
    end: int
    text: str
    tokens: int
    token_hash: str
    embedding: Vectors
    heading: tuple[str, ...] = ()
    pages: tuple[PageName, ...] = ()
    boxes: tuple[Box, ...] = ()
    spans: Spans | None = None
    sentences: Packed | None = None  # vectors, as retriever/sentences.py packs them


@dataclass(frozen=True)
class FileState:
    """What an ingest must know of a document to leave an unchanged file alone."""

    id: int
    content_hash: str
    size: int
    mtime_ns: int
    state: State
    attempts: int
    error: str | None


@dataclass(frozen=True)
class Document:
    """A stored document without its text, which `documents.layout` reads."""

    id: int
    collection_id: int
    source: str
    content_hash: str
    size: int
    mtime_ns: int
    kind: str
    title: str
    state: State
    error: str | None
    attempts: int
    created: datetime
    updated: datetime


@dataclass(frozen=True)
class Listed:
    """A document, with how much it is."""

    document: Document
    chunks: int
    tokens: int
    pages: int  # 0 where the format has none


@dataclass(frozen=True)
class DocumentLayout:
    """The text of a document and where it stands, as its loader told."""

    text: str
    pages: tuple[Page, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class StoredChunk:
    """A stored chunk without its embedding. `ordinal` is its place in the document, from 0."""

    id: int
    document_id: int
    ordinal: int
    start: int
    end: int
    text: str
    tokens: int
    token_hash: str
    heading: tuple[str, ...]
    pages: tuple[PageName, ...]
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Found:
    """A chunk with the document it comes from."""

    chunk: StoredChunk
    document: Document
    standing: float | None = None  # of the document in the order of the collection; None where it has no place yet


@dataclass(frozen=True)
class Removed:
    """What went: `orphans` are token hashes that no chunk of any collection has now, so their KV can be deleted."""

    documents: int = 0
    chunks: int = 0
    orphans: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replaced:
    """A document that is in now, its new chunks in order, and what its older version leaves behind."""

    document_id: int
    chunk_ids: tuple[int, ...]
    removed: Removed


@dataclass(frozen=True)
class CollectionTotals:
    """The numbers of a collection. `nbytes` counts the files as they were read."""

    documents: int
    failed: int
    nbytes: int
    chunks: int
    tokens: int


@dataclass(frozen=True)
class NewMessage:
    role: Role
    content: str
    citations: tuple[Mapping[str, Any], ...] = ()
    report: Mapping[str, Any] | None = None
    support: tuple[Mapping[str, Any], ...] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Message:
    id: int
    conversation_id: str
    role: Role
    content: str
    citations: tuple[Mapping[str, Any], ...]
    report: Mapping[str, Any] | None
    created: datetime
    support: tuple[Mapping[str, Any], ...] | None = None  # of its sentences; of old answers nobody knows it
    notes: tuple[str, ...] = ()  # what a reader should know of it


@dataclass(frozen=True)
class StoredConversation:
    id: str
    collection_id: int
    title: str
    created: datetime
    updated: datetime
    owner: str = ""  # the id of the key that began it; "": nobody's, as those of the command line


@dataclass(frozen=True)
class IngestRun:
    id: int
    collection_id: int
    started: datetime
    finished: datetime | None
    state: RunState
    pid: int
    counts: Mapping[str, int] = field(default_factory=dict)
