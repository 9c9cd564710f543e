"""Rows of prompts in the order in which vLLM's attention wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ragcache.engine.vllm.orders import PromptRows
from ragcache.types import Span, spans_of


@dataclass(frozen=True)
class Batch:
    """The rows of several prompts as vLLM takes them. A batch is ordered by span length: some attention backends want
    the single rows, which they treat as decodes, first.
    """

    spans: list[tuple[int, Span, range]]  # (which prompt, its span, the rows of that prompt), in the batch's order
    order: list[int]  # per row of the batch, which of all prompts' rows it is, one prompt after the other

    @classmethod
    def of(cls, prompts: Sequence[PromptRows]) -> Batch:
        spans = []
        offsets = [0, *accumulate(len(prompt.ids) for prompt in prompts)]
        for index, prompt in enumerate(prompts):
            done = 0
            for span in spans_of(prompt.positions):
                spans.append((index, span, range(done, done + len(span))))
                done += len(span)
        spans.sort(key=lambda item: len(item[1]))
        return cls(spans, [offsets[index] + row for index, _, own in spans for row in own])

    def gather(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """One value per row and prompt -> in the batch's order."""
        return [rows[index][row] for index, _, own in self.spans for row in own]
