"""What a question reads, summed over layers and brought down to one number per position."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ragcache.engine.torch.attention import Attended
from ragcache.linking.base import READ_TOKENS, Reduction


class QuestionSum:
    """Attention of the last READ_TOKENS of a question to each position before it, summed over layers.

    Holds 4 * READ_TOKENS bytes per position, 16 MiB of 16k positions, however long the question is.
    """

    def __init__(self, rows: Sequence[int], question: int, device: torch.device):
        """`rows`: positions of a pass, the question's last. `question`: its first position."""
        # Of the rows, the first one that is read.
        self.first = max(len(rows) - READ_TOKENS, sum(row < question for row in rows))
        self._total = torch.zeros((len(rows) - self.first, question), device=device)

    def add(self, first: int, read: Attended) -> None:
        """What rows of one layer read; `first`: which row of the pass is the first one that `read` counts from."""
        start = first + read.start - self.first
        assert start >= 0, (first, read.start, self.first)
        own = self._total[start : start + read.stop - read.start]
        own += read.mean[:, : own.shape[1]]

    def mean(self, layers: int) -> torch.Tensor:
        """Per token, mean over layers. [tokens, question]"""
        return self._total.div_(layers)


def reduced(attention: torch.Tensor, reduction: Reduction) -> torch.Tensor:
    """[tokens, question] -> [question]"""
    return attention.amax(0) if reduction == "max" else attention.mean(0)
