"""RagPipeline: documents in, cited answers out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from app.answering import Answer, Asked, Retrieved
from app.answering.answerer import Answering, AnswerRequest
from app.answering.anticipation import Anticipation
from app.answering.condensing import condensed
from app.answering.conversation import Conversation
from app.answering.gated import GatedAnswers
from app.answering.question_options import taking
from app.answering.search import KEYWORD, CollectionSearch, Searched, in_parts
from app.answering.standing import DocumentPlace
from app.answering.stream import AnswerStream, AsyncAnswerStream
from app.chat.verbs import ContextVerbs
from app.compose import close, open_library
from app.ingestion import IngestOptions, IngestResult
from app.ingestion.ingest import Ingest
from app.library import Library
from app.library.catalog.records import Collection
from app.library.fidelity import calibrated, is_long, tuned_linker
from app.models import Models
from app.models.cores import in_thread, release_helpers
from app.models.folders import resolve_model
from app.prompt import Turn, check_question
from app.settings import RetrievalMode, Settings, load_settings
from ragcache.linking.auto import Auto
from ragcache.linking.base import Linker
from ragcache.refining import Refining
from retriever.shared_property import shared_property

if TYPE_CHECKING:
    from app.chat.chat import ChatAnswering


AUTO = Auto()  # what settings have that name no other


class RagPipeline(ContextVerbs):
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
        self._searching = CollectionSearch(self.library, self.models)
        self.gate = GatedAnswers(self.models)
        self.ahead = Anticipation(self.models, self.library.catalog)

    @property
    def settings(self) -> Settings:
        return self.library.settings

    @property
    def answering(self) -> Answering:
        """What makes answers from chunks, wherever these come from. Loads the models at the first use."""
        with self._lock:
            if self._loaded is None:
                self._loaded = Answering.over(self.models, self.library.catalog)
                self.gate.judge(measure=False)
            return self._loaded

    def load(self) -> None:
        """All models, now rather than at the first question; whether linking works on them is measured once."""
        cache, settings = self.answering.cache, self.settings
        self.gate.judge(measure=True)
        # Not by a vLLM server, whose captures may be off and are waited for, nor for machines that share a bucket.
        if settings.refine and not self.models.links_elsewhere and not settings.remote:
            cache.refining = cache.refining or Refining(settings.refine)
        self._warm()

    @shared_property
    def chat(self) -> ChatAnswering:
        """Answers to messages, without documents."""
        from app.chat.chat import ChatAnswering
        from app.chat.rendering import ChatRenderer
        from app.models.chat_template import load_tokenizer

        answering, settings = self.answering, self.settings
        tokenizer = load_tokenizer(resolve_model(settings.model, settings.cache_dir))
        renderer = ChatRenderer(tokenizer, answering.template.tokens)
        return ChatAnswering(answering.cache, answering.template, renderer, self.models.sampling)

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

    @taking(Asked)
    def retrieve(self, question: str, **options: Any) -> list[Retrieved]:
        """The chunks that an answer would be made from, best first; neighbours behind the hits. Copies of a text count
        once, also in another dress (app/answering/selection.py)."""
        return self.search(question, **options).chunks

    @taking(Asked)
    def search(self, question: str, **options: Any) -> Searched:
        """The same with what its user should know of it."""
        asked = Asked(**options)
        collection = self._searching.collection(asked.collection, asked.collection_id)
        with self.models.answering():
            return self._searching.run(collection, check_question(question), asked)

    # -- answers ----------------------------------------------------------------------------------------------------

    @taking(Asked)
    def ask(self, question: str, **options: Any) -> Answer:
        return self.stream(question, **options).answer

    @taking(Asked)
    def stream(self, question: str, **options: Any) -> AnswerStream:
        """The answer as it comes. Its chunks are found when this returns, and its prompt is computed or under way."""
        return self.start(check_question(question), Asked(**options))

    def start(self, question: str, asked: Asked, last: Sequence[DocumentPlace] = ()) -> AnswerStream:
        """`last`: where the chunks of the last turn's prompt stand, in its order."""
        collection = self._searching.collection(asked.collection, asked.collection_id)
        answering = self.answering
        self._warm()
        started = perf_counter()
        settings = self.settings
        answering = answering.within(asked.border, asked.system, asked.system_owner)
        answering.check(question, asked.max_tokens or settings.max_tokens)
        with self.models.answering():  # finding chunks is part of it
            query = self.condensed(asked.history, question, asked.retrieval, asked.border)
            rewritten = perf_counter()
            found = self._searching.run(collection, query, asked)
            fits = self._searching.fits(query, asked.retrieval)
            seconds = {"condense": rewritten - started} if asked.history else {}
            seconds |= {"retrieve": perf_counter() - rewritten - sum(found.seconds.values()), **found.seconds}
            wanted = self._calibrated(collection, asked.linker, asked.system)
            linker, gated = (wanted, ()) if asked.linker else self.gate.chosen(collection.id, wanted)
            request = AnswerRequest(
                question,
                found.chunks,
                history=asked.history,
                last=last,
                max_tokens=asked.max_tokens or settings.max_tokens,
                linker=linker,
                sampling=asked.sampling,
                quotes=asked.quotes,
                order=asked.prompt_order or settings.prompt_order,
                seconds=seconds,
                notes=(*found.notes, *(() if fits else (in_parts(self.models.embedder.limit),)), *gated),
                stop=asked.stop,
                together=asked.together,
            )
            stream = answering.start(request)
            stream.report.seed = (asked.sampling or self.models.sampling).seed
            request = replace(request, together=None)  # what waits behind the answer holds no KV of it
        if self.gate.serves:
            stream.then.append(self.ahead.behind(answering, request))
        if not asked.linker and asked.system is None:  # of whose KV nothing may be kept
            stream.then.append(self.gate.measuring(collection.id, answering, request, wanted, stream.segments))
        stream.collection_id, stream.finding_s = collection.id, sum(seconds.values())
        for watch in self.watchers:
            watch(stream)
        return stream

    def conversation(self, conversation_id: str | None = None, collection: str | None = None) -> Conversation:
        """A new one, which is stored with its first answer; or one that was stored. Raises CatalogError."""
        if conversation_id is None:
            return Conversation(self.start, self.library.catalog, self._searching.collection(collection).name)
        return Conversation.stored(self.start, self.library.catalog, conversation_id)

    def condensed(
        self, history: Sequence[Turn], question: str, mode: RetrievalMode | None = None, border: str = ""
    ) -> str:
        """What a question behind these turns is searched by. `border`: of the KV of what the model reads for that."""
        answering = self.answering.within(border)
        condense = self.settings.condense
        fits = partial(self._searching.fits, mode=mode)
        return condensed(condense, history, question, lambda: (answering.template, answering.cache), fits)

    # -- the same in threads ----------------------------------------------------------------------------------------

    async def aingest(
        self, paths: Iterable[str | Path] | str | Path, collection: str | None = None, **options: Any
    ) -> IngestResult:
        return await in_thread(self.ingest, paths, collection, **options)

    @taking(Asked)
    async def aretrieve(self, question: str, **options: Any) -> list[Retrieved]:
        return await in_thread(self.retrieve, question, **options)

    @taking(Asked)
    async def aask(self, question: str, **options: Any) -> Answer:
        """Cancelling it stops the decoding."""
        return await (await self.astream(question, **options)).answer()

    @taking(Asked)
    async def astream(self, question: str, **options: Any) -> AsyncAnswerStream:
        return await AsyncAnswerStream.of(self.stream, question, **options)

    # -- parts ------------------------------------------------------------------------------------------------------

    def linker_of(self, collection: Collection) -> tuple[Linker, tuple[str, ...]]:
        """What a question is answered with whose user asks for no linker, and what he should know of that."""
        return self.gate.chosen(collection.id, self._calibrated(collection, None, None))

    def _calibrated(self, collection: Collection, wanted: str | None, own_system: str | None) -> Linker:
        """The linker of an answer from the collection: that which is asked for, else that of the settings, and where
        these say nothing the one that the collection was tuned to, which says nothing of a client's own system message.
        """
        if own_system is not None:
            return self.answering.cache.chosen(wanted)
        cache, name = self.answering.cache, self.answering.cache.engine.spec.fingerprint
        system, linker = self.answering.template.system().hash, cache.chosen(wanted)
        if not wanted and linker == AUTO:
            linker = tuned_linker(collection, name, system) or linker
        return calibrated(linker, collection, name, system)

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
