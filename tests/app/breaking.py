"""Engines that break amid an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from ragcache.engine.torch.sampler import Sampler


@contextmanager
def breaking(tokens: int) -> Iterator[None]:
    """In this block the torch engine breaks when answers have come to so many tokens."""
    chosen, choose = list[int](), Sampler.choose

    def breaks(sampler: Sampler, logits: torch.Tensor) -> int:
        chosen.append(choose(sampler, logits))
        if len(chosen) > tokens:
            raise RuntimeError("the engine broke")
        return chosen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler, "choose", breaks)
        yield
