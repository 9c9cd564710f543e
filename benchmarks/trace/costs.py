"""What a first token takes by what is left to compute and to bring, on this machine: measured, not modelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.models.loading import TorchModel
from benchmarks.corpus import read_texts, split_documents
from benchmarks.rates import RatesBenchOptions
from benchmarks.rates.measurement import computing, joined, loading
from benchmarks.trace import TraceBenchOptions
from ragcache.store.findings import DISK

PIECE = 200  # tokens that are brought at once
STEP = 256


@dataclass(frozen=True)
class TraceCosts:
    """Seconds: of a token that is computed, and of each that stands before it."""

    token: float
    pair: float
    load: float  # of a token's KV, from the disk

    def first_token(self, computed: float, loaded: float, tokens: float) -> float:
        """Computed ones stand anywhere in the prompt, so behind half of it."""
        return computed * (self.token + self.pair * tokens / 2) + loaded * self.load


def measured(parts: TorchModel, options: TraceBenchOptions) -> TraceCosts:
    """By steps at growing positions, and pieces from the disk whose pages the system has forgotten."""
    asked = RatesBenchOptions(
        tiers=(DISK,), codecs=("bf16",), tokens=(PIECE,), context=options.context, step=STEP, rounds=options.rounds
    )
    pool = split_documents(parts.template, read_texts(options.data), PIECE)
    chunks = [chunk for document in pool for chunk in document]
    (brought,) = loading(parts, {PIECE: joined(chunks, PIECE)}, asked)
    steps = [(int(str(row["position"])), int(str(row["tokens"])), float(str(row["seconds"])))
             for row in computing(parts, joined(chunks, options.context), asked)]  # fmt: skip
    return _fitted(steps, float(str(brought["seconds"])) / PIECE)


def _fitted(steps: Sequence[tuple[int, int, float]], load: float) -> TraceCosts:
    found = np.array([(tokens, tokens * (position + tokens / 2)) for position, tokens, _ in steps])
    (token, pair), *_ = np.linalg.lstsq(found, np.array([seconds for *_, seconds in steps]), rcond=None)
    return TraceCosts(max(0.0, float(token)), max(0.0, float(pair)), load)
