"""Answers to messages, without documents: an AnswerStream as those over documents are, with nothing cited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.answering import Answer
from app.answering.answerer import STOPPED
from app.answering.pieces import Pieces
from app.answering.stream import AnswerStream
from app.chat.messages import ChatTurn, Resolve
from app.chat.rendering import ChatRenderer
from app.errors import NotFound
from app.prompt import PromptTemplate
from ragcache.cache import ChunkCache
from ragcache.errors import PromptError
from ragcache.sampling import Sampling
from ragcache.together import Together
from ragcache.types import Chunk, Segment, System, Text

ANSWER = 1024  # tokens at most, where nobody says how many and there is room
BEHIND = 8  # tokens of a text, which tell a decoder that what follows is not its beginning


@dataclass(frozen=True)
class ChatOptions:
    """What is None is as the model or the settings have it."""

    max_tokens: int | None = None
    sampling: Sampling | None = None
    stop: Sequence[str] = ()
    linker: str | None = None
    border: str = ""  # who may see the KV of it
    owner: str = ""  # nobody but him is served by KV of the messages' own system text
    together: Together | None = None  # with other answers to the same


def no_caches(cache_id: str) -> Sequence[Chunk]:
    raise NotFound(f"no context cache {cache_id!r}: it never was, or has expired")


@dataclass(frozen=True)
class ChatAnswering:
    """Threads may share it."""

    cache: ChunkCache
    template: PromptTemplate
    renderer: ChatRenderer
    sampling: Sampling

    def start(
        self, turns: Sequence[ChatTurn], options: ChatOptions | None = None, resolve: Resolve = no_caches
    ) -> AnswerStream:
        """The prompt is computed when this returns, or the engine is at it. Raises PromptError, and what `resolve`
        raises.
        """
        options = options or ChatOptions()
        most = self.cache.engine.spec.max_tokens
        return self._started(self.renderer.segments(turns, resolve, options.border, most), options)

    def complete(self, prompt: str | Sequence[int], options: ChatOptions | None = None) -> AnswerStream:
        """What a text, or its tokens, goes on with, blanks too."""
        options = options or ChatOptions()
        ids = self.renderer.plain(prompt) if isinstance(prompt, str) else tuple(prompt)
        if not ids:
            raise PromptError("the prompt is empty: give it some text")
        return self._started([Text(ids, options.border)], options, ids[-BEHIND:])

    def _started(
        self, segments: Sequence[Segment], options: ChatOptions, behind: Sequence[int] | None = None
    ) -> AnswerStream:
        room = self.cache.engine.spec.max_tokens - sum(map(len, segments))
        wanted = max(1, min(ANSWER, room)) if options.max_tokens is None else options.max_tokens
        generation = self.cache.generate(
            segments,
            max_tokens=wanted,
            sampling=options.sampling or self.sampling,
            linker=options.linker,
            stop=self.template.stop,
            behind=self._behind(segments, options),
            owner=options.owner,
            together=options.together,
        )

        def finish(text: str, whole: bool) -> Answer:
            return Answer("", text, (), generation.report, () if whole else (STOPPED,))

        return AnswerStream(generation, Pieces(self.template.decode, options.stop, behind), (), finish)

    def _behind(self, segments: Sequence[Segment], options: ChatOptions) -> System | None:
        """What is captured of context caches stands behind the template's System segment, where theirs is an owner's:
        he may have another one each time, and the KV of each would take the place of what everybody asks for.
        """
        ours = self.template.within(options.border).system()
        theirs = segments[0]
        return ours if options.owner and isinstance(theirs, System) and theirs.hash != ours.hash else None
