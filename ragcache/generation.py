"""Decoding: one token after the other, over the buffer that the prefill left."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter

import torch

from ragcache.base import TokenStream
from ragcache.engine.torch.buffer import KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.report import Report
from ragcache.sampling import Sampler, Sampling


class Generation(TokenStream):
    """The torch engine's: each token is computed when it is asked for."""

    def __init__(
        self,
        engine: TorchEngine,
        buffer: KVBuffer,
        prompt: int,
        logits: torch.Tensor,
        report: Report,
        started: float,
        max_tokens: int,
        sampling: Sampling,
        stop: frozenset[int],
        finish: Callable[[], None] | None,
        answering: Callable[[], AbstractContextManager[None]] = nullcontext,
    ):
        """`prompt`: tokens in the buffer; `started`: when the request came; `finish` runs after the last token. Each is
        computed inside of `answering`.
        """
        self.report = report
        self.tokens: list[int] = []
        sampler = Sampler(sampling)
        first = sampler.choose(logits)
        report.ttft_s = perf_counter() - started
        self._stream = self._decode(engine, buffer, prompt, first, sampler, max_tokens, stop, finish, answering)

    def __iter__(self) -> Iterator[int]:
        return self._stream

    def cancel(self) -> None:
        """The thread that would wait computes, and sees afterwards that it is to end."""

    def close(self) -> None:
        self._stream.close()  # it holds the buffer

    def _decode(
        self,
        engine: TorchEngine,
        buffer: KVBuffer,
        prompt: int,
        token: int,
        sampler: Sampler,
        max_tokens: int,
        stop: frozenset[int],
        finish: Callable[[], None] | None,
        answering: Callable[[], AbstractContextManager[None]],
    ) -> Generator[int, None, None]:
        started = perf_counter()
        while token not in stop:
            self.tokens.append(token)
            yield token
            if len(self.tokens) == max_tokens:
                break
            with answering():
                hidden = engine.compute([token], [prompt + len(self.tokens) - 1], buffer)
                token = sampler.choose(engine.logits(hidden)[0])
        self.report.answer_tokens = len(self.tokens)
        self.report.decode_s = perf_counter() - started
        if finish is not None:
            finish()
