"""Engines that stall amid an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import pytest
import torch

from ragcache.engine.torch.sampler import Sampler

PATIENCE_S = 120.0


@contextmanager
def stalling() -> Iterator[Event]:
    """In this block the torch engine chooses no token before the event is set."""
    going_on, choose = Event(), Sampler.choose

    def stalls(sampler: Sampler, logits: torch.Tensor) -> int:
        assert going_on.wait(PATIENCE_S)
        return choose(sampler, logits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler, "choose", stalls)
        try:
            yield going_on
        finally:
            going_on.set()
