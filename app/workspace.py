"""A collection with all that works on it: catalog, indexes, splitter, embedder, and the model when it is needed.

Opening is cheap. The language model, the embedder and the indexes are loaded when they are first asked for, so that a
command which finds nothing to do ends at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from app.catalog import Catalog, CatalogError, Collection, open_catalog
from app.catalog.catalog import catalog_to_look_at
from app.folders import index_folder
from app.models import resolve_embedder, resolve_model
from app.settings import Settings
from retriever.shared_property import shared_property

if TYPE_CHECKING:
    from app.compose import LoadedModel
    from app.prompt import PromptTemplate
    from ragcache.cache import ChunkCache
    from ragcache.store import KVStore
    from retriever.embedder import Embedder
    from retriever.reranker import Reranker
    from retriever.searcher import Searcher, SearchOptions
    from retriever.types import IntArray
    from splitter.base import Splitter


class Workspace:
    """What one process shares; threads may use it. Close it, or use it in a `with`."""

    def __init__(self, settings: Settings, catalog: Catalog | None = None):
        self.settings = settings
        self.catalog = catalog or open_catalog(settings)
        self._lock = threading.RLock()  # of the searchers
        self._searchers: dict[str, Searcher] = {}  # by uid of the collection

    # -- made at the first use --------------------------------------------------------------------------------------

    @shared_property
    def parts(self) -> LoadedModel:
        """The language model, with its tokenizer."""
        from app.compose import load_model

        return load_model(self.settings)

    @shared_property
    def template(self) -> PromptTemplate:
        """Only the tokenizer, where the model is not loaded anyway."""
        from app.plain_tokenizer import open_tokenizer
        from app.prompt import PromptTemplate

        if loaded := Workspace.parts.peek(self):
            return loaded.template
        folder = resolve_model(self.settings.model, self.settings.cache_dir)
        return PromptTemplate(open_tokenizer(self.settings, folder), self.settings.system_prompt)

    @shared_property
    def embedder(self) -> Embedder:
        from app.compose import load_embedder

        return load_embedder(self.settings)

    @shared_property
    def boundaries(self) -> Embedder:
        """What the splitters compare sentences by; searches never see its vectors."""
        from app.ingestion.boundaries import boundary_embedder

        return boundary_embedder(self.settings)

    @shared_property
    def store(self) -> KVStore:
        from app.compose import load_store

        return load_store(self.settings)

    @shared_property
    def cache(self) -> ChunkCache:
        return self.parts.cache(self.store)

    @shared_property
    def embedder_fingerprint(self) -> str:
        """Without loading the model, or even its library."""
        from retriever.fingerprint import fingerprint

        return fingerprint(resolve_embedder(self.settings.embedder))

    # -- of a collection --------------------------------------------------------------------------------------------

    def collection(self, name: str | None = None) -> Collection:
        """Raises CatalogError when it is not there, or was embedded by another model."""
        collection = self.catalog.collections.get(name or self.settings.collection)
        self.check_embedder(collection)
        return collection

    def collection_or_new(self, name: str | None = None) -> Collection:
        """For an ingest: made where there is none, with the embedder and the splitter of the settings."""
        wanted = name or self.settings.collection
        found = self.catalog.collections.find(wanted) or self._create(wanted)
        self.check_embedder(found)
        return found

    def check_embedder(self, collection: Collection) -> None:
        """Raises CatalogError when it was embedded by another model than that of the settings."""
        self.catalog.collections.check_embedder(collection, self.settings.embedder, self.embedder_fingerprint)

    def splitter(self, collection: Collection | None, name: str | None = None) -> Splitter:
        """As the collection was made with, so that all its documents are cut alike, or as a new one would be made; or
        another one with the same limits, by name. Raises SplitterError.
        """
        if collection is None:
            return self._splitter(name or self.settings.splitter, self._limits)
        return self._splitter(name or collection.splitter, collection.splitter_settings)

    @property
    def _limits(self) -> dict[str, int]:
        return {"max_tokens": self.settings.chunk_tokens, "min_tokens": self.settings.min_chunk_tokens}

    def searcher(self, collection: Collection) -> Searcher:
        """Its indexes, which follow the catalog by themselves."""
        with self._lock:
            if collection.uid not in self._searchers:
                self._searchers[collection.uid] = self._open(collection)
            return self._searchers[collection.uid]

    @property
    def search_options(self) -> SearchOptions:
        from retriever.searcher import SearchOptions

        return SearchOptions(mode=self.settings.retrieval)

    def index_folder(self, collection: Collection) -> Path:
        return index_folder(self.settings, collection.uid)

    def _create(self, name: str) -> Collection:
        settings, limits = self.settings, self._limits
        self._splitter(settings.splitter, limits)  # what cannot be cut should not be there
        try:
            return self.catalog.collections.create(
                name,
                embedder=settings.embedder,
                embedder_fingerprint=self.embedder_fingerprint,
                dimension=self.embedder.dimension,
                splitter=settings.splitter,
                splitter_settings=limits,
            )
        except CatalogError:
            made = self.catalog.collections.find(name)  # by another process, just now
            if made is None:
                raise
            return made

    def _splitter(self, name: str, limits: Mapping[str, int]) -> Splitter:
        from splitter import make_splitter
        from splitter.base import ChunkLimits

        return make_splitter(name, self.template.tokens, self.boundaries.embed, ChunkLimits(**limits))

    def _open(self, collection: Collection) -> Searcher:
        from retriever.keyword_index import KeywordIndex
        from retriever.searcher import Searcher
        from retriever.vector_index import VectorIndex

        folder = self.index_folder(collection)
        reranker = self._reranker()
        return Searcher(
            self.catalog.source(collection),
            VectorIndex(collection.dimension, collection.embedder_fingerprint, folder),
            KeywordIndex(folder),
            self.embedder.embed_query,
            reranker,
            self._texts,
        )

    def _texts(self, ids: IntArray) -> Sequence[str]:
        texts = {found.chunk.id: found.chunk.text for found in self.catalog.chunks.found(ids)}
        return [texts.get(one, "") for one in ids.tolist()]  # a chunk may be deleted while a question is asked

    def _reranker(self) -> Reranker | None:
        from retriever.reranker import Reranker

        if self.settings.reranker is None:
            return None
        from app.devices import resolve_device

        return Reranker(resolve_embedder(self.settings.reranker), str(resolve_device(self.settings)))

    # -- what waits for answers -------------------------------------------------------------------------------------

    def answering(self) -> AbstractContextManager[None]:
        """While somebody waits for what is done inside: captures that can wait hold on."""
        loaded = Workspace.parts.peek(self)
        return loaded.keeper.answering() if loaded else nullcontext()

    def settle(self) -> None:
        """Wait until such captures are done."""
        if loaded := Workspace.parts.peek(self):
            loaded.keeper.settle()

    # -- end --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """What is asked of it afterwards fails."""
        try:
            if loaded := Workspace.parts.peek(self):
                loaded.close()
        finally:
            self.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def workspace_to_look_at(settings: Settings) -> Iterator[Workspace]:
    """For commands that change nothing: where there is no catalog they see an empty one, and none is made."""
    with catalog_to_look_at(settings) as catalog, Workspace(settings, catalog) as workspace:
        yield workspace


def workspace_for(settings: Settings, *, dry: bool) -> AbstractContextManager[Workspace]:
    """For commands that change nothing where they only tell what they would do."""
    return workspace_to_look_at(settings) if dry else Workspace(settings)
