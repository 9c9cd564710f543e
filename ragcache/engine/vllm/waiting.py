"""Prompts that wait in vLLM's queue with their plan made: what the workers read of them meanwhile."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from ragcache.engine.vllm.block_names import PromptNames
from ragcache.engine.vllm.jobs import NamedLinkage
from ragcache.engine.vllm.orders import Fetch, Load
from ragcache.loader import SegmentPiece
from ragcache.loader.reading import AHEAD_BYTES


@dataclass(frozen=True)
class _Queued:
    pieces: tuple[SegmentPiece, ...]
    nbytes: int  # on a rank, once they are read
    makes: bytes | None  # the link that others will find in the prefix cache


class WaitingPrompts:
    """In the order in which they came. As much is read as waits to be placed of one prompt at most, or a first one that
    is larger; what others read in order to go on has the disk before it.
    """

    def __init__(self, token_bytes: int):
        self._token_bytes = token_bytes
        self._waiting: dict[str, _Queued] = {}  # and nothing is read of them yet
        self._fetched: dict[str, int] = {}  # bytes
        self._forgone: list[str] = []  # since the last step

    @property
    def requests(self) -> set[str]:
        return {*self._waiting, *self._fetched}

    def joined(self, request: str, asked: NamedLinkage, names: PromptNames) -> None:
        """Nothing is read where the prefix cache has all of it."""
        pieces = asked.pieces() if names.held < asked.plan.question else ()
        nbytes = sum(len(asked.span(piece.index)) for piece in pieces) * self._token_bytes
        share = names.share
        if pieces:
            self._waiting[request] = _Queued(pieces, nbytes, None if share is None else share.key)

    def left(self, request: str) -> None:
        """It has its blocks: what was read for it is for its Load."""
        self._waiting.pop(request, None)

    def gone(self, request: str) -> None:
        """Nothing of it will be loaded."""
        self._waiting.pop(request, None)
        if self._fetched.pop(request, None) is not None:
            self._forgone.append(request)

    def orders(
        self, loads: Iterable[Load], making: Container[bytes], *, quiet: bool
    ) -> tuple[tuple[Fetch, ...], tuple[str, ...]]:
        """What the workers read from now on, and what no more. `loads`: of this step. `making`: links that are made
        now. `quiet`: nobody reads in order to go on.
        """
        for load in loads:
            self._fetched.pop(load.request, None)
        forgone, self._forgone = tuple(self._forgone), []
        return tuple(self._next(making)) if quiet else (), forgone

    def _next(self, making: Container[bytes]) -> Iterator[Fetch]:
        first = set[bytes]()  # of links that several wait for
        for request, one in list(self._waiting.items()):
            if one.makes is not None and (one.makes in making or one.makes in first):
                continue
            if self._fetched and sum(self._fetched.values()) + one.nbytes > AHEAD_BYTES:
                return
            first.update([] if one.makes is None else [one.makes])
            self._fetched[request] = self._waiting.pop(request).nbytes
            yield Fetch(request, one.pieces)
