"""An answer as it comes: pieces of its text, what each was made of, and why it ended."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, replace
from itertools import starmap, zip_longest
from typing import TYPE_CHECKING, ParamSpec, Self

from app.answering import Answer, Citation
from app.models.cores import in_thread, release_helpers
from ragcache.errors import FAULTS, reason_of
from ragcache.repetition import Repetition

if TYPE_CHECKING:
    from app.answering.pieces import Pieces
    from ragcache.engine import TokenStream
    from ragcache.sampling import FinishReason, TokenLogprobs
    from ragcache.types import Segment

P = ParamSpec("P")
Finish = Callable[[str, bool], Answer]  # from the text, and whether it is whole; what may break is for `then`
REPEATED = "the answer began to repeat itself and was stopped"
BROKEN = "a fault broke the answer off, or its server ended"
CUT_OFF = "the answer was cut off: it came to its most tokens (max_tokens, RAGCACHE_MAX_TOKENS)"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnswerToken:
    """`told` where the sampling asks for logprobs. `start` counts the characters before it, with blank edges."""

    token: int
    start: int
    told: TokenLogprobs | None = None


@dataclass(frozen=True)
class Usage:
    """Tokens of a prompt and its answer, those that stopped it among them but for a stop token."""

    prompt: int
    answer: int
    cached: int  # of the prompt's, those whose KV was there; inside vLLM known when the answer has ended


class AnswerStream:
    """Pieces of text, once; `answer` reads the rest of them and holds everything.

    Closing it early, or leaving its `with`, stops decoding and frees the prompt's KV; `answer` is then what came until
    there. One thread reads it; another may `stop` it. An answer that repeats itself, or that came to a stop string,
    ends there, and is whole.
    """

    def __init__(self, generation: TokenStream, pieces: Pieces, citations: tuple[Citation, ...], finish: Finish):
        self.citations = citations  # without quotes until the answer is complete
        self.report = generation.report  # complete when the answer is
        self.collection_id: int | None = None  # whose chunks it is made from, where the catalog has them
        self.segments: Sequence[Segment] = ()  # of its prompt
        self.finding_s = 0.0  # of the time to its first token, what went before the engine
        self.then: list[Callable[[Answer], Answer]] = []  # called with the answer, once; may add to it
        self.heard: list[Callable[[], None]] = []  # called at each token, on the thread that reads
        self.broken = False  # whether what ends it before its end is a fault, and no wish of its reader's
        self._generation = generation
        self._tokens: Iterator[int] | None = iter(generation)
        self._pieces = pieces
        self._finish = finish
        self._shown: list[str] = []
        self._taken = 0  # tokens
        self._answer: Answer | None = None
        self._stopped = threading.Event()
        self._repetition = Repetition()
        self._repeats = False
        self._lock = threading.Lock()  # of a step

    @property
    def text(self) -> str:
        """What has come so far."""
        return "".join(self._shown)

    @property
    def finish_reason(self) -> FinishReason | None:
        """None before the end."""
        if self._tokens is not None:
            return None
        return "stop" if self._pieces.stopped else self._generation.finish_reason

    @property
    def usage(self) -> Usage:
        """So far."""
        return Usage(self.report.prompt_tokens, len(self._generation.tokens), self.report.cached)

    def take_tokens(self) -> list[AnswerToken]:
        """Those that the pieces so far were made of and that were not taken yet. At the end these are all but what
        begins in a stop string.
        """
        first, self._taken = self._taken, self._pieces.tokens
        tokens, told = self._generation.tokens[first : self._taken], self._generation.logprobs[first : self._taken]
        starts = self._pieces.starts[first : self._taken]
        return list(starmap(AnswerToken, zip_longest(tokens, starts, told)))

    @property
    def answer(self) -> Answer:
        for _ in self:
            pass
        assert self._answer is not None
        return self._answer

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        with self._lock:
            piece = self._step()
        if self._stopped.is_set():
            self.close()
        if not piece:
            raise StopIteration
        return piece

    def stop(self, broken: bool = False) -> None:
        """Ask it to end after the token that is computed now, if one is; does not wait. Whoever reads it ends it."""
        self.broken = self.broken or broken
        self._stopped.set()
        self._generation.cancel()

    def close(self) -> None:
        """End here. Nothing happens when it has ended."""
        self._stopped.set()
        with self._lock:
            self._end(whole=False)

    def _step(self) -> str:
        """The next piece; "" at the end."""
        piece = ""
        while not piece and self._tokens is not None and not self._stopped.is_set():
            token = self._next_token()
            if token is not None:
                piece = self._pieces.add(token)
                if self._pieces.stopped:
                    self._generation.enough()
                continue
            if piece := self._pieces.end():
                self._shown.append(piece)
            # An engine that is ended, or a server of its own, cuts answers off.
            cut = self._generation.finish_reason == "cancelled"
            self.broken = self.broken or (cut and not self._stopped.is_set())
            self._end(whole=not cut and not self._stopped.is_set())
            return piece
        if piece:
            self._shown.append(piece)
        return piece

    def _next_token(self) -> int | None:
        """What breaks here leaves an answer that was stopped, however often it is asked for."""
        assert self._tokens is not None
        with ExitStack() as broken:
            broken.callback(self._break)
            token = next(self._tokens, None)
            if token is not None:
                for call in self.heard:
                    call()
            if token is not None and not self._repeats and self._repetition.add(token):
                self._repeats = True
                self._generation.enough()
            broken.pop_all()
        return token

    def _break(self) -> None:
        self.broken = True
        self._end(whole=False)

    def _end(self, whole: bool) -> None:
        if self._tokens is None:
            return
        self._tokens = None
        try:
            self._generation.close()
        finally:  # an engine that breaks does not take what was shown with it
            self.report.answer_tokens = len(self._generation.tokens)
            self._answer = self._finish(self.text, whole)
            if ending := self._ending(whole):
                self._answer = replace(self._answer, notes=(*self._answer.notes, ending))
            with ExitStack() as rest:  # all of it, also where the program is interrupted meanwhile
                rest.callback(release_helpers)
                for call in reversed(self.then):
                    rest.callback(self._follow, call)

    def _ending(self, whole: bool) -> str:
        """What a reader should know of its end; "" of one that ended by itself, or by his wish."""
        if not whole:
            return BROKEN if self.broken else ""
        if self._repeats:
            return REPEATED
        return CUT_OFF if self.finish_reason == "length" else ""

    def _follow(self, call: Callable[[Answer], Answer]) -> None:
        """What breaks in one is told, and costs neither the answer nor the others."""
        assert self._answer is not None
        try:
            self._answer = call(self._answer)
        except FAULTS as error:
            _log.error("behind an answer", exc_info=error)
            note = f"not all was done behind the answer: {reason_of(error)}"
            self._answer = replace(self._answer, notes=(*self._answer.notes, note))
        self.citations = self._answer.citations

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if any(isinstance(one, Exception) for one in raised):  # an interrupt is none
            self.stop(broken=True)
        self.close()


class AsyncAnswerStream:
    """The same for a program with an event loop. Cancelling a step stops the decoding."""

    @classmethod
    async def of(cls, start: Callable[P, AnswerStream], /, *args: P.args, **kwargs: P.kwargs) -> Self:
        """What `start` gives. It is closed where it comes too late for a caller that was cancelled."""
        starting = asyncio.ensure_future(in_thread(start, *args, **kwargs))
        try:
            return cls(await asyncio.shield(starting))
        except asyncio.CancelledError:
            starting.add_done_callback(_close_late)
            raise

    def __init__(self, stream: AnswerStream):
        self._stream = stream
        # All steps on one thread, which ends with this object: each that computes gets helpers (see app/models).
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answer")

    @property
    def citations(self) -> tuple[Citation, ...]:
        return self._stream.citations

    @property
    def text(self) -> str:
        return self._stream.text

    @property
    def finish_reason(self) -> FinishReason | None:
        return self._stream.finish_reason

    @property
    def usage(self) -> Usage:
        return self._stream.usage

    def take_tokens(self) -> list[AnswerToken]:
        return self._stream.take_tokens()

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        piece = await self._in_thread(lambda: next(self._stream, None))
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def answer(self) -> Answer:
        """Reads the rest first."""
        async for _ in self:
            pass
        return self._stream.answer

    async def aclose(self) -> None:
        self._stream.stop()
        await in_thread(self._stream.close)

    async def _in_thread(self, step: Callable[[], str | None]) -> str | None:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, copy_context().run, step)
        except asyncio.CancelledError:
            self._stream.stop()
            self._thread.submit(self._stream.close)  # behind the step, if it still runs; perhaps nobody reads on
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        if any(isinstance(one, Exception) for one in raised):
            self._stream.stop(broken=True)
        await self.aclose()


def _close_late(started: asyncio.Future[AnswerStream]) -> None:
    if not started.cancelled() and started.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, started.result().close)
