"""A document that was read, cut into chunks that can be embedded and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.ingestion import Failure
from app.ingestion.survey import Pending
from app.ingestion.worker import FileStamp
from app.library.catalog.records import ChunkRecord, DocumentRecord, Vectors
from app.loaders.base import Parsed
from app.models.embedding import Headed
from app.prompt import PromptTemplate
from ragcache.errors import PromptError
from ragcache.types import Chunk
from retriever.sentences import Packed
from splitter import SplitterError
from splitter.base import Piece, Splitter

# What a single text can do to a splitter and a tokenizer, and to a model, which also fails in these ways as a whole.
OF_A_TEXT = (SplitterError, PromptError, RecursionError, MemoryError)
OF_A_BATCH = (ValueError, LookupError, RuntimeError, MemoryError)
Check = Callable[[], None]  # raises where the ingest is to end
ChunkVectors = tuple[Vectors, Sequence[Packed]]  # of each chunk, and of its sentences


@dataclass(frozen=True)
class Draft:
    """A document whose chunks have no embeddings yet. Its texts are slices, made when they are asked for."""

    record: DocumentRecord
    parsed: Parsed
    pieces: tuple[Piece, ...]

    def texts(self) -> list[str]:
        return [self.record.text[piece.start : piece.end] for piece in self.pieces]

    def wanted_texts(self, check: Check) -> Iterator[str]:
        """For what takes long with each."""
        for text in self.texts():
            check()
            yield text

    def headed(self) -> list[Headed]:
        """What the vectors are of: a chunk below its headings."""
        return [(piece.heading, text) for piece, text in zip(self.pieces, self.texts(), strict=True)]

    def segments(self, template: PromptTemplate) -> Iterator[Chunk]:
        """For the KV. One at a time: the ids of a large document take many times its text."""
        return (template.chunk(text) for text in self.texts())

    def chunks(self, template: PromptTemplate, vectors: ChunkVectors, check: Check = lambda: None) -> list[ChunkRecord]:
        """`vectors`: of all pieces."""
        chunks = []
        for piece, text, *of_piece in zip(self.pieces, self.wanted_texts(check), *vectors, strict=True):
            chunks.append(_chunk(self.parsed, piece, text, template, *of_piece))
        return chunks


def draft(source: str, stamp: FileStamp, parsed: Parsed, splitter: Splitter) -> Draft:
    pieces = tuple(splitter.split(parsed.text, parsed.kind))
    return Draft(record(source, stamp, parsed), parsed, pieces)


def uncut(file: Pending, error: Exception) -> Failure:
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    reason = f"cannot be cut into chunks that are embedded ({told}): split it, or convert it to another format"
    return Failure(file.source, f"{reason}; its older version stays" if file.is_ready else reason)


def record(source: str, stamp: FileStamp, parsed: Parsed) -> DocumentRecord:
    return DocumentRecord(source, **vars(stamp), **vars(parsed))


def _chunk(
    parsed: Parsed, piece: Piece, text: str, template: PromptTemplate, vector: Vectors, sentences: Packed
) -> ChunkRecord:
    pages, lines = parsed.around(piece.start, piece.end)
    return ChunkRecord(
        start=piece.start,
        end=piece.end,
        text=text,
        tokens=template.count(text),
        token_hash=template.chunk(text).hash,
        embedding=vector,
        sentences=sentences,
        heading=piece.heading,
        pages=tuple((page.number, page.label) for page in pages),
        boxes=tuple((line.page, *line.box) for line in lines),
        spans=(tuple((page.start, page.end) for page in pages), tuple((line.start, line.end) for line in lines)),
    )
