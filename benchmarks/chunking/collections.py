"""Texts that were cut, kept and searched as the product does it: in collections of a folder that goes afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from app.answering.pipeline import RagPipeline
from app.compose import opened
from app.ingestion.draft import Draft, record
from app.ingestion.worker import FileStamp
from app.library import Library
from app.library.catalog.records import Collection
from app.library.learning import learn_if_due
from app.loaders.base import Parsed
from app.models import Models
from app.models.embedding import embed_chunks
from app.settings import Settings
from benchmarks.chunking import HYBRID, VECTOR, WORDS
from benchmarks.chunking.data import Corpus, Span
from benchmarks.folder import bench_folder
from retriever import searcher
from splitter.base import Piece

MODES = {VECTOR: searcher.VECTOR, WORDS: searcher.KEYWORD, HYBRID: searcher.HYBRID}
# What a question is answered by beside the flags of the benchmark; the reranker is told in its JSON.
PINNED = ("top_tokens", "neighbours", "mmr", "rerank_depth")
NO_FILE = FileStamp("0" * 64, 0, 0)

Find = Callable[[str], Sequence[Span]]  # from a question to its chunks, best first


@dataclass(frozen=True)
class CutText:
    """The pieces of a corpus, and the collection that holds them: `chunk_ids` and `tokens` are of each piece."""

    corpus: Corpus
    pieces: tuple[Piece, ...]
    collection: Collection
    chunk_ids: tuple[int, ...]
    tokens: tuple[int, ...]

    def texts(self) -> list[str]:
        return [self.corpus.text[piece.start : piece.end] for piece in self.pieces]


class CorpusCollections:
    def __init__(self, library: Library, models: Models):
        self.library = library
        self.models = models
        self._names = map(str, count())
        self._pipelines = {name: self._pipeline(mode) for name, mode in MODES.items()}

    def fill(self, corpus: Corpus, pieces: Sequence[Piece]) -> CutText:
        """As an ingest does."""
        collection = self.library.collection_or_new(next(self._names))
        parsed = Parsed(corpus.text, corpus.kind, corpus.name)
        draft = Draft(record(corpus.name, NO_FILE, parsed), parsed, tuple(pieces))
        vectors, _ = embed_chunks(self.models.embedder, draft.headed())
        chunks = draft.chunks(self.models.template, (vectors, self.models.sentences.packed(draft.texts())))
        replaced = self.library.catalog.documents.replace(collection, draft.record, chunks)
        learn_if_due(self.library, self.models, collection)
        return CutText(corpus, draft.pieces, collection, replaced.chunk_ids, tuple(chunk.tokens for chunk in chunks))

    def finder(self, cut: CutText, retrieval: str, top_k: int) -> Find:
        """As a question does."""
        pipeline, name = self._pipelines[retrieval], cut.collection.name

        def find(question: str) -> list[Span]:
            return [(one.start, one.end) for one in pipeline.retrieve(question, collection=name, top_k=top_k)]

        return find

    def _pipeline(self, mode: str) -> RagPipeline:
        settings = self.library.settings.model_copy(update={"retrieval": mode})
        return RagPipeline(over=(Library(settings, self.library.catalog, self.models), self.models))


@contextmanager
def collections_apart(settings: Settings) -> Iterator[CorpusCollections]:
    """Beside the user's own, which are not touched. What the environment says of a question stays outside: figures of
    one command would differ from user to user, and tell nothing of it."""
    pinned = {name: Settings.model_fields[name].default for name in PINNED}
    with bench_folder(settings.cache_dir) as folder:
        alone = settings.model_copy(update={"data_dir": folder, "database_url": None} | pinned)
        with opened(alone) as (library, models):
            yield CorpusCollections(library, models)
