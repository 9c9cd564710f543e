"""Decoding: one token after the other, over the buffer that the prefill left."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from time import perf_counter
from typing import TYPE_CHECKING

from ragcache.engine.base import LinkSource, PromptRequest, TokenStream
from ragcache.engine.torch.buffer import KVBuffer
from ragcache.engine.torch.prefill import Prefilled
from ragcache.report import Report
from ragcache.sampling import Sampler

if TYPE_CHECKING:
    from ragcache.engine.torch.engine import TorchEngine


class TorchGeneration(TokenStream):
    """Each token is computed when it is asked for."""

    def __init__(
        self,
        engine: TorchEngine,
        prompt: PromptRequest,
        prefilled: Prefilled,
        source: LinkSource,
        started: float,
        finish: Callable[[Report], None] | None = None,
    ):
        """`started`: when the request came; `finish` runs after the last token."""
        self.report = prefilled.report
        self.tokens: list[int] = []
        self._engine, self._prompt, self._source, self._finish = engine, prompt, source, finish
        sampler = Sampler(prompt.sampling)
        first = sampler.choose(prefilled.logits)
        self.report.ttft_s = perf_counter() - started
        self._stream = self._decode(prefilled.buffer, prefilled.length, first, sampler)

    def __iter__(self) -> Iterator[int]:
        return self._stream

    def cancel(self) -> None:
        """The thread that would wait computes, and sees afterwards that it is to end."""

    def close(self) -> None:
        self._stream.close()  # it holds the buffer

    def _decode(self, buffer: KVBuffer, length: int, token: int, sampler: Sampler) -> Generator[int, None, None]:
        started = perf_counter()
        stop = self._engine.spec.eos | self._prompt.stop
        while token not in stop:
            self.tokens.append(token)
            yield token
            if len(self.tokens) == self._prompt.max_tokens:
                break
            with self._source.answering():
                hidden = self._engine.compute([token], [length + len(self.tokens) - 1], buffer)
                token = sampler.choose(self._engine.logits(hidden)[0])
        self.report.answer_tokens = len(self.tokens)
        self.report.decode_s = perf_counter() - started
        if self._finish is not None:
            self._finish(self.report)
