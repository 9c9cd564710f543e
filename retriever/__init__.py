"""From a question to chunks: embedding, vector and keyword indexes, fusion, reranking. Here is what these parts hand to
each other, and the error that they raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ragcache.errors import RagcacheError

if TYPE_CHECKING:  # a command that lists documents has no use for it
    import numpy as np
    import numpy.typing as npt


class RetrieverError(RagcacheError):
    """An embedding model or an index that cannot be used."""

    status = 503


Vectors: TypeAlias = "npt.NDArray[np.float32]"
IntArray: TypeAlias = "npt.NDArray[np.int64]"
FloatArray: TypeAlias = "npt.NDArray[np.float64]"


@dataclass(frozen=True)
class Hit:
    """A chunk that was found. `scores` says what each source that knew it gave it: vector, keyword, reranker."""

    id: int
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)
