"""An answer of vLLM's: its tokens wait until they are read."""

from __future__ import annotations

import queue
import uuid
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from inspect import GEN_RUNNING, getgeneratorstate
from time import perf_counter
from typing import Any

from ragcache.engine import LinkSource, PromptRequest, TokenStream
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.engine.vllm.submission import SubmittingVllm
from ragcache.engine.vllm.told_report import fill
from ragcache.errors import ModelError, RagcacheError
from ragcache.linking import linker_spec
from ragcache.report import Report
from ragcache.sampling import FinishReason, TokenLogprobs

REASONS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length"}  # by vLLM's


class VllmGeneration(TokenStream):
    """One request of vLLM's. Leaving it early aborts the request; its report tells what was linked all the same."""

    def __init__(
        self,
        engine: SubmittingVllm,
        prompt: PromptRequest,
        source: LinkSource,
        finish: Callable[[Report], None] | None,
    ):
        """Until the first token is there, somebody waits for it. `finish` runs after the last one."""
        ids = [token for segment in prompt.segments for token in segment.ids]
        params = link_params(prompt.segments, linker_spec(prompt.linker), always=prompt.apart)
        salt = uuid.uuid4().hex if prompt.apart else None
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.report = Report(prompt.linker.name, len(ids), 0, 0)
        self._engine, self._finish = engine, finish
        self._stop = engine.spec.eos | prompt.stop
        self._outputs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._most = prompt.sampling.logprobs
        if prompt.apart and self._most is not None:
            self._most = min(engine.most_logprobs, engine.spec.vocabulary)
        self._ended = False  # vLLM has said its last word
        self._left = False
        self._linked: dict[str, Any] = {}  # what that word told of the link
        self._started = perf_counter()
        settings = asdict(prompt.sampling)  # vLLM names them alike
        settings |= {"stop_token_ids": sorted(self._stop), "logit_bias": dict(prompt.sampling.logit_bias) or None}
        settings["logprobs"] = self._most
        told = engine.sampling(prompt.max_tokens, {"kv_transfer_params": params}, **settings)
        self._answered = source.begin_answering()
        with ExitStack() as refused:
            refused.callback(self._answered)
            self._request = engine.submit(ids, told, partial(_deliver, self._answered, self._outputs), salt)
            refused.pop_all()
        self._alone = not engine.answers
        self._read = _nobody_reads if prompt.apart else engine.reading()
        self._stream = self._tokens()
        # Python runs no `finally` of a generator that nobody ever asked for a token.
        self._unread = weakref.finalize(self, _forsake, engine, self._request, self._answered, self._read)
        self._unread.atexit = False

    def __iter__(self) -> Iterator[int]:
        return self._stream

    def cancel(self) -> None:
        self._engine.forsake(self._request, self._outputs.put)

    def close(self) -> None:
        if getgeneratorstate(self._stream) != GEN_RUNNING:  # else another thread reads it, and closing raises
            self._leave(self._engine.abort)
        self._stream.close()
        self.finish_reason = self.finish_reason or "cancelled"

    def _leave(self, abort: Callable[[str], dict[str, Any]]) -> None:
        if self._left:
            return
        self._left = True
        self._unread.detach()
        self._answered()
        self._read()
        if not self._ended:
            self._hear(abort(self._request))
        with suppress(queue.Empty):  # vLLM may have been ahead of the reader, or another thread have cancelled it
            while True:
                self._hear(self._outputs.get_nowait())
        fill(self.report, self._linked)

    def _tokens(self) -> Generator[int, None, None]:
        first, reason = 0.0, REASONS["stop"]
        try:
            while not (self._ended or self._is_enough):
                output = self._next()
                if isinstance(output, dict):
                    self.finish_reason = "cancelled"
                    return
                first, new = first or self._first(), output.outputs[0]
                reason = REASONS.get(new.finish_reason, "cancelled")
                for place, token in enumerate(new.token_ids):
                    told = None if self._most is None else _logprobs(token, new.logprobs[place], self._most)
                    if token in self._stop:
                        self.ending = told
                    else:
                        self.logprobs += [] if told is None else [told]
                        self.tokens.append(token)
                        yield token
                    if self._is_enough:
                        break
            self.finish_reason = "stop" if self._is_enough else reason
            self._leave(self._engine.abort)  # where it is enough, vLLM is still at it
        finally:  # perhaps because nobody holds the stream any more
            self._leave(self._engine.forsake)
        self._complete(first)

    def _next(self) -> Any:
        """Of vLLM; a dict where another thread cancelled it."""
        output = self._outputs.get()
        self._hear(output)
        if isinstance(output, RagcacheError):
            raise output
        if output is None:
            raise ModelError("the vLLM engine broke during the answer: see the log for why, and start another")
        return output

    def _hear(self, output: Any) -> None:
        """None or an error when the engine broke, and what an aborted request would have told."""
        if output is None or isinstance(output, RagcacheError):
            self._ended = True
        elif isinstance(output, dict):
            self._ended = True
            self._linked = output.get(KEY) or self._linked
        elif output.finished:
            self._ended = True
            self._linked = (output.kv_transfer_params or {}).get(KEY, {})

    def _first(self) -> float:
        """Whoever started us may have put into the report what it waited for before."""
        now = perf_counter()
        self.report.ttft_s += now - self._started
        return now

    def _compare(self, seconds: float) -> None:
        """With what was planned, as if it were alone."""
        if self.report.planned_s is not None and self._alone:
            self._engine.came(self.report.planned_s, seconds)

    def _complete(self, first: float) -> None:
        self.report.decode_s = perf_counter() - first
        self.report.answer_tokens = len(self.tokens)
        self._compare(first - self._started)
        if self._finish is not None:
            self._finish(self.report)


def _deliver(answered: Callable[[], None], outputs: queue.SimpleQueue[Any], output: Any) -> None:
    """On the engine's thread: whether anybody reads it or not, nobody waits for a first token any more."""
    answered()
    outputs.put(output)


def _forsake(engine: SubmittingVllm, request: str, *ends: Callable[[], object]) -> None:
    for end in ends:
        end()
    engine.forsake(request)


def _nobody_reads() -> None:
    """What is measured."""


def _logprobs(token: int, told: Mapping[int, Any], most: int) -> TokenLogprobs:
    """Of vLLM's: the likeliest by their ranks, and the chosen one, which may be none of them."""
    top = sorted((one.rank, other, one.logprob) for other, one in told.items() if one.rank <= most)
    return TokenLogprobs(token, told[token].logprob, tuple((other, logprob) for _, other, logprob in top))
