"""Where the indexes take their truth from: the chunks of one collection, as SQL or a program's memory holds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retriever import IntArray, Vectors

if TYPE_CHECKING:
    from retriever.sentences import Packed

Batch = tuple[IntArray, list[str], Vectors]  # ids, texts, float32 [ids, dimension]
# A chunk matches when, for every key, its value is one of those given: {"document": ["a.pdf", "b.pdf"]}.
Where = Mapping[str, Sequence[object]]


@dataclass(frozen=True)
class Position:
    """How far a history goes. A new one is all zeros."""

    high: int = 0  # no id above it has been given so far
    retired: int = 0  # highest number in the log of retirements
    live: int = 0  # chunks


class Source(ABC):
    """Chunks that come and go; an index that follows them is derived and can always be made again.

    Ids are positive, ascend in the order in which chunks become visible, and are never given again: an id stands for
    the same text and vector for ever. Numbers in the log of retirements ascend too, from 1. Its oldest may go: who is
    so far behind has chunks that are gone, so more than there are, and is made again. Vectors have length 1.

    Several threads may call, and the chunks may change between two calls, and between two batches of one.
    """

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Of the vectors."""

    @abstractmethod
    def position(self) -> Position:
        """Where the history stands now. It is asked before each query, so it must be quick."""

    @abstractmethod
    def added(self, after: int, batch: int = 4096) -> Iterator[Batch]:
        """The live chunks with an id above `after`, ascending, at most `batch` at a time and never an empty batch. The
        texts are what words find a chunk by, which may stand below a title.
        """

    def sentences(self, ids: IntArray) -> Sequence[Packed | None]:
        """The vectors of their sentences, in the order of the ids; None for a chunk that has none, or is gone."""
        return [None] * len(ids)

    @abstractmethod
    def retired(self, after: int, most: int = 4096) -> list[tuple[int, int]]:
        """(number, chunk id) of the first `most` retirements with a number above `after`, ascending."""

    @abstractmethod
    def live_ids(self, where: Where) -> IntArray:
        """Ids of the live chunks that match, ascending.

        Raises an error that names the key or value for one that no chunk has, and for a key with no values.
        """
