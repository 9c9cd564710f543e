"""From a question and the chunks that were found for it to an answer that streams, with quotes from what it cites."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Self

from app.answering import Answer, Citation, Quote, Retrieved, locate
from app.answering.pieces import Pieces
from app.answering.standing import DocumentPlace, as_they_stood, in_prompt_order
from app.answering.stream import AnswerStream
from app.answering.support import Passage, supported
from app.library.catalog import Catalog
from app.library.catalog.records import PageName
from app.library.identities import remember_identity
from app.settings import PromptOrder
from ragcache.errors import FAULTS, PromptError, RagcacheError, reason_of
from ragcache.together import Together
from retriever import Vectors
from splitter.base import Embed, Offsets

if TYPE_CHECKING:
    from app.models import Models
    from app.prompt import PromptTemplate, Turn
    from ragcache.cache import ChunkCache
    from ragcache.engine import TokenStream
    from ragcache.linking.base import Linker
    from ragcache.sampling import Sampling
    from ragcache.types import Chunk, Segment, System

NOTHING_FOUND = "no chunk was found for this question: answered without any"
STOPPED = "stopped before its end"
LIKELY = 3  # sentences of each chunk that the embedder compares
_log = logging.getLogger(__name__)
Pages = Callable[[Citation, int, int, str], Sequence[PageName] | None]  # of a span of its document, with its text


@dataclass(frozen=True)
class AnswerRequest:
    """All that one answer depends on."""

    question: str
    found: Sequence[Retrieved]  # best first
    history: Sequence[Turn] = ()  # oldest first
    last: Sequence[DocumentPlace] = ()  # of the chunks of the last turn's prompt, in its order
    max_tokens: int = 256
    linker: Linker | str | None = None
    sampling: Sampling | None = None
    quotes: bool = True
    order: PromptOrder = "collection"
    seconds: Mapping[str, float] = field(default_factory=dict)  # spent on the way here, by stage
    notes: tuple[str, ...] = ()  # what the user should know of the way here
    stop: Sequence[str] = ()  # texts, before the first of which the answer ends
    together: Together | None = None  # with other answers to it


@dataclass(frozen=True)
class ComposedPrompt:
    segments: tuple[Segment, ...]
    placed: Sequence[Retrieved]  # its chunks, in their order
    notes: tuple[str, ...]  # what was left out
    ordering_s: float = 0.0  # that it took to choose the order


@dataclass(frozen=True)
class Answering:
    """`embed` chooses the quotes, where there is one; `catalog` knows their pages. `sampling` is for requests that
    bring none, and greedy when None.
    """

    template: PromptTemplate
    cache: ChunkCache
    embed: Embed | None = None
    catalog: Catalog | None = None
    sampling: Sampling | None = None
    behind: System | None = None  # what is captured for the prompts to come, in place of the template's own
    owner: str = ""  # of the template's, then

    @classmethod
    def over(cls, models: Models, catalog: Catalog) -> Self:
        """Loads the models."""
        sampling = models.sampling  # before the model: what is wrong with it is told at once
        made = cls(models.language.template, models.cache, models.embedder.embed, catalog, sampling)
        remember_identity(models)
        return made

    def within(self, border: str, system: str | None = None, owner: str = "") -> Self:
        """The same, with all its KV within a border, and perhaps behind another system prompt. Where that has an owner,
        its KV stays in memory, for him: what is captured stands behind the template's.
        """
        if not border and system is None:
            return self
        template = self.template if system is None else self.template.behind(system)
        behind = self.template.within(border).system() if owner and system is not None else None
        return replace(self, template=template.within(border), behind=behind, owner=owner)

    def check(self, question: str, max_tokens: int) -> None:
        """Raises PromptError for a question that cannot be asked, before anything is searched for."""
        fit(self.template, question, (), (), self.cache.engine.spec.max_tokens, max_tokens)

    def start(self, request: AnswerRequest) -> AnswerStream:
        """The prompt is computed when this returns, or the engine is at it. Raises PromptError for a question that
        cannot be asked.
        """
        prompt = self.prompt(request)
        generation = self.cache.generate(
            prompt.segments,
            max_tokens=request.max_tokens,
            sampling=request.sampling or self.sampling,
            linker=request.linker,
            stop=self.template.stop,
            behind=self.behind,
            owner=self.owner,
            together=request.together,
        )
        notes = prompt.notes if request.found else (NOTHING_FOUND,)
        if prompt.ordering_s:
            request = replace(request, seconds={**request.seconds, "order": prompt.ordering_s})
        stream = self._stream(request, generation, prompt.placed, (*request.notes, *notes))
        stream.segments = prompt.segments
        return stream

    def prompt(self, request: AnswerRequest) -> ComposedPrompt:
        """Raises PromptError for a question that cannot be asked."""
        template = self.template
        chunks = [template.chunk(one.text) for one in request.found]
        fitted = fit(
            template,
            request.question,
            [len(chunk) for chunk in chunks],
            request.history,
            self.cache.engine.spec.max_tokens,
            request.max_tokens,
        )
        by_id = {one.chunk_id: chunk for one, chunk in zip(request.found, chunks, strict=True)}
        placed, seconds = self._placed(request, request.found[: fitted.chunks], by_id)
        history = request.history[len(request.history) - fitted.turns :]
        text = template.turns(history, request.question, passages=bool(placed))
        segments = (template.system(), *(by_id[one.chunk_id] for one in placed), text)
        return ComposedPrompt(segments, placed, fitted.notes, seconds)

    def _placed(
        self, request: AnswerRequest, found: Sequence[Retrieved], by_id: Mapping[int | str, Chunk]
    ) -> tuple[Sequence[Retrieved], float]:
        """In the order that was asked for, and the seconds that it took to choose it."""
        if request.order == "best":
            return found, 0.0
        placed = in_prompt_order(found, [document for document, _ in request.last])
        if request.order == "collection":
            return placed, 0.0
        if request.last:
            return as_they_stood(placed, request.last), 0.0
        started = perf_counter()
        chunks = [by_id[one.chunk_id] for one in placed]
        order = self.cache.least_repaired(self.template.system(), chunks)
        return [placed[place] for place in order], perf_counter() - started

    def _stream(
        self, request: AnswerRequest, generation: TokenStream, placed: Sequence[Retrieved], notes: tuple[str, ...]
    ) -> AnswerStream:
        report = generation.report
        report.seconds.update(request.seconds)
        report.ttft_s += sum(request.seconds.values())  # as whoever asked has waited
        report.incidents += notes
        cited = tuple(Citation.of(number, one) for number, one in enumerate(placed, start=1))

        def finish(text: str, whole: bool) -> Answer:
            return Answer(request.question, text, cited, report, notes if whole else (*notes, STOPPED))

        stream = AnswerStream(generation, Pieces(self.template.decode, request.stop), cited, finish)
        stream.then += [partial(self._quoted, request), with_support]
        return stream

    def _quoted(self, request: AnswerRequest, answer: Answer) -> Answer:
        if self.embed is None or not request.quotes or STOPPED in answer.notes:
            return answer
        try:
            with self.cache.source.answering():
                cited = quoted(answer.citations, request.question, answer.text, self.embed, self._pages)
        except FAULTS as error:  # the answer stands without them
            if not isinstance(error, RagcacheError):
                _log.error("no quotes", exc_info=error)
            return replace(answer, notes=(*answer.notes, f"no quotes: {reason_of(error)}"))
        return replace(answer, citations=cited)

    def _pages(self, cited: Citation, start: int, end: int, text: str) -> list[PageName] | None:
        places = locate(self.catalog, cited, start, end, text) if self.catalog else None
        return None if places is None else [(place.page, place.label) for place in places]


def with_support(answer: Answer) -> Answer:
    passages = [Passage(one.text, ". ".join((one.title, *one.heading))) for one in answer.citations]
    return replace(answer, support=supported(answer.text, passages) if passages else ())


@dataclass(frozen=True)
class Fitted:
    """How many of the best chunks, and how many of the newest turns, are kept."""

    chunks: int
    turns: int
    notes: tuple[str, ...]


def fit(
    template: PromptTemplate,
    question: str,
    chunks: Sequence[int],
    history: Sequence[Turn],
    context: int,
    answer: int,
) -> Fitted:
    """`chunks` are lengths in tokens, best first. Raises PromptError for a question that does not fit alone.

    Chunks go before turns, the lowest-ranked first; but where a long conversation would leave no room for any, the
    oldest turns go as far as they take more than half of it.
    """
    # As without chunks, which takes a few tokens more: they may all have to go.
    fixed = len(template.system()) + len(template.turns((), question, passages=False))
    room = context - answer - fixed
    if room < 0:
        raise PromptError(
            f"the question is too long: with the system prompt it takes {fixed} tokens and the answer up to {answer}, "
            f"while the model's context has {context}: shorten it, or ask for fewer max_tokens"
        )
    kept, turns = list(chunks), [len(template.turn(turn)) for turn in history]
    while sum(turns) > room // 2 and sum(kept) + sum(turns) > room:
        turns.pop(0)
    while len(kept) > 1 and sum(kept) + sum(turns) > room:
        kept.pop()
    while turns and sum(kept) + sum(turns) > room:
        turns.pop(0)
    if sum(kept) > room:
        kept = []
    return Fitted(len(kept), len(turns), tuple(_notes(len(chunks), len(kept), len(history), len(turns), context)))


def _notes(chunks: int, kept: int, history: int, turns: int, context: int) -> list[str]:
    why = f"the prompt and the answer would not fit the model's context of {context} tokens"
    notes = []
    if kept < chunks:
        notes.append(f"the lowest-ranked {chunks - kept} of {chunks} chunks left out: {why}")
    if turns < history:
        notes.append(f"the oldest {history - turns} of {history} turns left out: {why}")
    return notes


def quoted(
    citations: Sequence[Citation], question: str, answer: str, embed: Embed, pages: Pages
) -> tuple[Citation, ...]:
    """The citations with quotes: one pass of the embedder over a dozen sentences, so it costs little.

    Sentences are compared with question and answer together: an answer may be one name, which is in all of them.
    """
    said = f"{question} {answer}"
    from splitter.units import sentence_spans  # it imports NLTK

    spans = [_likely(one.text, list(sentence_spans(one.text, 0, len(one.text))), said) for one in citations]
    if not answer or not any(spans):
        return tuple(citations)
    texts = [citation.text[start:end] for citation, own in zip(citations, spans, strict=True) for start, end in own]
    vectors = embed([said, *texts])
    likeness = vectors[1:] @ vectors[0]  # [sentences]
    done, first = [], 0
    for citation, own in zip(citations, spans, strict=True):
        done.append(_with_quote(citation, own, likeness[first : first + len(own)], pages))
        first += len(own)
    return tuple(done)


def _likely(text: str, spans: list[Offsets], said: str) -> list[Offsets]:
    """The few that share most with what was said, letter by letter, in any language; in their order."""
    wanted = _trigrams(said)
    shares = {
        span: len(own & wanted) / (len(own) + len(wanted)) for span in spans if (own := _trigrams(text[slice(*span)]))
    }
    return sorted(sorted(shares, key=lambda span: -shares[span])[:LIKELY])


def _trigrams(text: str) -> set[str]:
    padded = f" {text.casefold()} "
    return {padded[place : place + 3] for place in range(len(padded) - 2)}


def _with_quote(citation: Citation, spans: Sequence[Offsets], likeness: Vectors, pages: Pages) -> Citation:
    if not spans:
        return citation
    best = int(likeness.argmax())
    start, end = spans[best]
    text = citation.text[start:end]
    start, end = citation.start + start, citation.start + end
    # A chunk within one page tells the page of its sentences; only else the catalog is asked.
    found = pages(citation, start, end, text) if len(citation.pages) > 1 else None
    quote = Quote(start, end, text, tuple(citation.pages if found is None else found), float(likeness[best]))
    return replace(citation, quote=quote)
