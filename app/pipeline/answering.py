"""From a question and the chunks that were found for it to an answer that streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.catalog import Catalog, PageName
from app.citations import Citation, Retrieved, locate
from app.pipeline.answer import Answer
from app.pipeline.budget import fit
from app.pipeline.pieces import Pieces
from app.pipeline.prompt_order import in_prompt_order
from app.pipeline.quoting import quoted
from app.pipeline.stream import AnswerStream
from ragcache.errors import RagcacheError

if TYPE_CHECKING:
    from app.prompt import PromptTemplate, Turn
    from ragcache.cache import ChunkCache
    from ragcache.engine.base import TokenStream
    from ragcache.sampling import Sampling
    from splitter.base import Embed

NOTHING_FOUND = "no chunk was found for this question: answered without any"
STOPPED = "stopped before its end"


@dataclass(frozen=True)
class AnswerRequest:
    """All that one answer depends on."""

    question: str
    found: Sequence[Retrieved]  # best first
    history: Sequence[Turn] = ()  # oldest first
    last: Sequence[int | str] = ()  # documents of the last turn's prompt, in its order
    max_tokens: int = 256
    linker: str | None = None
    sampling: Sampling | None = None
    quotes: bool = True
    seconds: Mapping[str, float] = field(default_factory=dict)  # spent on the way here, by stage
    notes: tuple[str, ...] = ()  # what the user should know of the way here


@dataclass(frozen=True)
class Answering:
    """`embed` chooses the quotes, where there is one; `catalog` knows their pages."""

    template: PromptTemplate
    cache: ChunkCache
    embed: Embed | None = None
    catalog: Catalog | None = None

    def check(self, question: str, max_tokens: int) -> None:
        """Raises PromptError for a question that cannot be asked, before anything is searched for."""
        fit(self.template, question, (), (), self.cache.engine.spec.max_tokens, max_tokens)

    def start(self, request: AnswerRequest) -> AnswerStream:
        """The prompt is computed when this returns, or the engine is at it. Raises PromptError for a question that
        cannot be asked.
        """
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
        placed = in_prompt_order(request.found[: fitted.chunks], request.last)
        by_id = {one.chunk_id: chunk for one, chunk in zip(request.found, chunks, strict=True)}
        history = request.history[len(request.history) - fitted.turns :]
        text = template.turns(history, request.question, passages=bool(placed))
        generation = self.cache.generate(
            [template.system(), *(by_id[one.chunk_id] for one in placed), text],
            max_tokens=request.max_tokens,
            sampling=request.sampling,
            linker=request.linker,
            stop=template.stop,
        )
        notes = fitted.notes if request.found else (NOTHING_FOUND,)
        return self._stream(request, generation, placed, (*request.notes, *notes))

    def _stream(
        self, request: AnswerRequest, generation: TokenStream, placed: Sequence[Retrieved], notes: tuple[str, ...]
    ) -> AnswerStream:
        report = generation.report
        report.seconds.update(request.seconds)
        report.ttft_s += sum(request.seconds.values())  # as whoever asked has waited
        report.incidents += notes
        cited = tuple(Citation.of(number, one) for number, one in enumerate(placed, start=1))

        def finish(text: str, whole: bool) -> Answer:
            if not whole:
                return Answer(request.question, text, cited, report, (*notes, STOPPED))
            try:
                return Answer(request.question, text, self._quoted(request, cited, text), report, notes)
            except RagcacheError as error:  # the answer stands without them
                return Answer(request.question, text, cited, report, (*notes, f"no quotes: {error}"))

        return AnswerStream(generation, Pieces(self.template.decode), cited, finish)

    def _quoted(self, request: AnswerRequest, cited: tuple[Citation, ...], text: str) -> tuple[Citation, ...]:
        if self.embed is None or not request.quotes:
            return cited
        with self.cache.source.answering():
            return quoted(cited, request.question, text, self.embed, self._pages)

    def _pages(self, cited: Citation, start: int, end: int, text: str) -> list[PageName] | None:
        places = locate(self.catalog, cited, start, end, text) if self.catalog else None
        return None if places is None else [(place.page, place.label) for place in places]
