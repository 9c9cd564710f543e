"""What the parts of retrieval hand to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # a command that lists documents has no use for it
    import numpy as np
    import numpy.typing as npt

Vectors: TypeAlias = "npt.NDArray[np.float32]"
IntArray: TypeAlias = "npt.NDArray[np.int64]"
FloatArray: TypeAlias = "npt.NDArray[np.float64]"


@dataclass(frozen=True)
class Hit:
    """A chunk that was found. `scores` says what each source that knew it gave it: vector, keyword, reranker."""

    id: int
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)
