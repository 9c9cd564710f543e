"""What the parts of retrieval hand to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Hit:
    """A chunk that was found. `scores` says what each source that knew it gave it: vector, keyword, reranker."""

    id: int
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)
