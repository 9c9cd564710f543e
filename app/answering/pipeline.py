"""RagPipeline: documents in, cited answers out."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Self, Unpack

from app.answering import Answer, Asked, AskOptions, Retrieved, retrieved
from app.answering.answerer import Answering, AnswerRequest
from app.answering.conversation import Conversation, condensed
from app.answering.selection import Limits, beside, places_beside, select
from app.answering.stream import AnswerStream, AsyncAnswerStream
from app.compose import close, open_library
from app.errors import CatalogError, NotFound
from app.ingestion import IngestOptions, IngestResult
from app.ingestion.ingest import Ingest
from app.library import Library
from app.library.catalog.records import Collection, Found
from app.library.fidelity import calibrated, is_long
from app.library.fusion import search_options
from app.library.kv import remember_identity
from app.models import Models
from app.models.cores import in_thread, release_helpers
from app.prompt import Turn, check_question
from app.settings import Settings, load_settings
from ragcache.linking.base import Linker

KEYWORD = "keyword"  # a search that needs no embedder


@dataclass(frozen=True)
class Searched:
    """What a question found."""

    chunks: list[Retrieved]
    notes: tuple[str, ...]  # what its user should know
    seconds: Mapping[str, float]  # of its stages but the search itself


class RagPipeline:
    """Threads may share it. Methods that begin with `a` do the same in a thread, for programs with an event loop.

    Raises RagcacheError, in one of its kinds, for all that its users can mend.
    """

    def __init__(self, settings: Settings | None = None, over: tuple[Library, Models] | None = None):
        """With the settings of this process unless others are given; or over what is open already, and stays so."""
        assert settings is None or over is None, "what is open has settings already"
        self.library, self.models = over or open_library(settings or load_settings())
        self.watchers: list[Callable[[AnswerStream], None]] = []  # are told of each answer that starts
        self._shared = over is not None
        self._lock = threading.Lock()  # of what is loaded once
        self._loaded: Answering | None = None
        self._checked: set[str] = set()  # uids of collections that our embedder made the vectors of

    @property
    def settings(self) -> Settings:
        return self.library.settings

    @property
    def answering(self) -> Answering:
        """What makes answers from chunks, wherever these come from. Loads the models at the first use."""
        with self._lock:
            if self._loaded is None:
                models = self.models
                sampling = models.sampling  # before the model: what is wrong with it is told at once
                self._loaded = Answering(
                    models.language.template, models.cache, models.embedder.embed, self.library.catalog, sampling
                )
                remember_identity(models)
            return self._loaded

    def load(self) -> None:
        """All models, now rather than at the first question."""
        assert self.answering
        self._warm()

    # -- documents --------------------------------------------------------------------------------------------------

    def ingest(
        self, paths: Iterable[str | Path] | str | Path, collection: str | None = None, **options: Any
    ) -> IngestResult:
        """Read files and folders into a collection, which is made where there is none.

        `options`: fields of IngestOptions, such as glob and prune. Files that cannot be read are in the
        result; the others are in the collection.
        """
        chosen, library = IngestOptions(**options), self.library
        name = collection or self.settings.collection
        target = library.catalog.collections.find(name) if chosen.dry_run else library.collection_or_new(name)
        several = [paths] if isinstance(paths, str | Path) else paths
        try:
            result = Ingest(library, self.models, target, chosen).run([Path(path) for path in several])
            measure_answers(library, self.models, result)
            return result
        finally:
            release_helpers()

    def retrieve(self, question: str, **options: Unpack[AskOptions]) -> list[Retrieved]:
        """The chunks that an answer would be made from, best first; neighbours behind the hits. Copies of a text count
        once, also in another dress (app/answering/selection.py)."""
        return self.search(question, **options).chunks

    def search(self, question: str, **options: Unpack[AskOptions]) -> Searched:
        """The same with what its user should know of it."""
        asked = Asked(**options)
        collection = self._collection(asked.collection)
        with self.models.answering():
            return self._search(collection, check_question(question), asked)

    # -- answers ----------------------------------------------------------------------------------------------------

    def ask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        return self.stream(question, **options).answer

    def stream(self, question: str, **options: Unpack[AskOptions]) -> AnswerStream:
        """The answer as it comes. Its chunks are found when this returns, and its prompt is computed or under way."""
        return self.start(check_question(question), Asked(**options))

    def start(self, question: str, asked: Asked, last: Sequence[int | str] = ()) -> AnswerStream:
        """`last`: the documents of the last turn's prompt, in its order."""
        collection = self._collection(asked.collection)
        answering = self.answering
        self._warm()
        started = perf_counter()
        settings = self.settings
        answering.check(question, asked.max_tokens or settings.max_tokens)
        with self.models.answering():  # finding chunks is part of it
            query = self.condensed(asked.history, question)
            rewritten = perf_counter()
            found = self._search(collection, query, asked)
            seconds = {"condense": rewritten - started} if asked.history else {}
            stream = answering.start(
                AnswerRequest(
                    question,
                    found.chunks,
                    asked.history,
                    last,
                    asked.max_tokens or settings.max_tokens,
                    self._calibrated(collection, asked.linker),
                    asked.sampling,
                    asked.quotes,
                    asked.prompt_order or settings.prompt_order,
                    {**seconds, "retrieve": perf_counter() - rewritten - sum(found.seconds.values()), **found.seconds},
                    (*found.notes, *(() if self._fits(query) else (_in_parts(self.models.embedder.limit),))),
                )
            )
        for watch in self.watchers:
            watch(stream)
        return stream

    def conversation(self, conversation_id: str | None = None, collection: str | None = None) -> Conversation:
        """A new one, which is stored with its first answer; or one that was stored. Raises CatalogError."""
        if conversation_id is None:
            return Conversation(self, self._collection(collection).name)
        return Conversation.stored(self, conversation_id)

    def condensed(self, history: Sequence[Turn], question: str) -> str:
        """What a question behind these turns is searched by."""
        answering = self.answering
        condense = self.settings.condense
        return condensed(condense, history, question, lambda: (answering.template, answering.cache), self._fits)

    # -- the same in threads ----------------------------------------------------------------------------------------

    async def aingest(
        self, paths: Iterable[str | Path] | str | Path, collection: str | None = None, **options: Any
    ) -> IngestResult:
        return await in_thread(self.ingest, paths, collection, **options)

    async def aretrieve(self, question: str, **options: Unpack[AskOptions]) -> list[Retrieved]:
        return await in_thread(self.retrieve, question, **options)

    async def aask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        """Cancelling it stops the decoding."""
        return await (await self.astream(question, **options)).answer()

    async def astream(self, question: str, **options: Unpack[AskOptions]) -> AsyncAnswerStream:
        return await AsyncAnswerStream.of(self.stream, question, **options)

    # -- parts ------------------------------------------------------------------------------------------------------

    def _collection(self, name: str | None) -> Collection:
        """Raises CatalogError for one that is not there, is empty, or was embedded by another model."""
        wanted, catalog = name or self.settings.collection, self.library.catalog
        collection = catalog.collections.find(wanted)
        if collection is None:
            names = ", ".join(one.name for one in catalog.collections.all()) or "none yet"
            raise NotFound(f"no collection {wanted!r}; there are: {names}. {_how_to_fill(wanted)} makes it")
        if collection.uid not in self._checked:  # an embedding anew changes the uid
            self.library.collection(wanted)
            self._check_filled(collection)
            self._checked.add(collection.uid)
        return collection

    def _check_filled(self, collection: Collection) -> None:
        """Raises CatalogError where nothing can be found."""
        if not self.library.catalog.source(collection).position().live:
            name = collection.name
            raise CatalogError(f"collection {name!r} is empty: {_how_to_fill(name)} puts documents into it")

    def _search(self, collection: Collection, query: str, asked: Asked) -> Searched:
        searcher, limits = self.library.searcher(collection), Limits.of(asked, self.settings)
        if limits.tokens:
            limits = replace(limits, joins=self.models.template.joins)
        options, seconds = search_options(self.settings, collection, asked.mmr), dict[str, float]()
        live = cache(lambda: self.library.catalog.source(collection).position().live)
        # A cross-encoder takes long: it goes deeper once, whatever it finds there.
        for depth in islice(limits.depths(live), None if searcher.reranker is None else 2):
            found = searcher.search(query, depth, where=asked.where, options=options, seconds=seconds)
            hits = {hit.id: hit.score for hit in found}
            selection = select(self._rows(list(hits), limits.expected), limits)
            cut = not selection.ended and depth == len(hits) < live()
            if not cut:
                break
        if not selection.chosen:
            self._check_filled(collection)  # it may have been emptied since it was last asked
            if asked.where and not len(self.library.catalog.source(collection).live_ids(asked.where)):
                raise NotFound(f"no chunk matches all of the filter {dict(asked.where)}: leave some of it out")
        chunks = [retrieved(one, hits[one.chunk.id]) for one in selection.chosen]
        if limits.neighbours:
            there = self.library.catalog.chunks.at(places_beside(selection.chosen, limits.neighbours))
            joined = beside(selection.chosen, there, limits)
            chunks += [retrieved(one, hits[hit.chunk.id], "neighbour") for one, hit in joined]
        return Searched(chunks, (*selection.notes, *((_unseen(depth),) if cut else ())), seconds)

    def _rows(self, ids: Sequence[int], first: int) -> Iterator[Found]:
        """In their order. Mostly the first so many are enough, and reading rows takes time."""
        for part in (ids[:first], ids[first:]):
            if part:
                yield from self.library.catalog.chunks.found(part)

    def _calibrated(self, collection: Collection, wanted: str | None) -> Linker:
        """The linker of an answer from the collection."""
        cache = self.answering.cache
        system = self.answering.template.system().hash
        return calibrated(cache.chosen(wanted), collection, cache.engine.spec.fingerprint, system)

    def _fits(self, query: str) -> bool:
        """Whether the search reads all of it at once; words take any length."""
        return self.settings.retrieval == KEYWORD or self.models.embedder.whole_query(query)

    def _warm(self) -> None:
        """Load what finds chunks before the clock starts: a report tells what answers cost, not a program's start."""
        with self._lock:
            if self.settings.retrieval != KEYWORD:
                assert self.models.embedder.dimension
            if self.models.reranker is not None:
                self.models.reranker.load()

    # -- end --------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until what the answers so far lacked is captured, which nobody else waits for."""
        self.models.settle()

    def close(self) -> None:
        if not self._shared:
            close(self.library, self.models)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def measure_answers(library: Library, models: Models, result: IngestResult) -> None:
    """Behind a long ingest that has loaded the model."""
    if not is_long(result) or models.loaded is None:
        return
    from app.answering.calibration import calibrate_if_due  # it imports torch

    calibrate_if_due(library, models, result)


def _in_parts(limit: int) -> str:
    return f"the embedder reads {limit} tokens at once: this longer question was searched for in parts"


def _unseen(depth: int) -> str:
    return f"only the best {depth:,} hits were looked at: there may be more chunks"


def _how_to_fill(collection: str) -> str:
    return f"`ragcache ingest PATH -c {shlex.quote(collection)}`"
