"""Prompts that wait in vLLM's queue with their plan made: what the workers read of them meanwhile."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from ragcache.engine.vllm.block_names import PromptNames
from ragcache.engine.vllm.jobs import NamedLinkage
from ragcache.engine.vllm.orders import Fetch, Load, Within


@dataclass(frozen=True)
class _Waiting:
    asked: NamedLinkage
    names: PromptNames


class WaitingPrompts:
    """In the order in which they came, and of one at a time: what several read at once the first would wait for. What
    others read in order to go on has the disk before it.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}  # and nothing is read of them yet
        self._fetched: str | None = None  # of which the workers have not been told to load it
        self._forgone: list[str] = []  # since the last step

    @property
    def requests(self) -> set[str]:
        return {*self._waiting, *([] if self._fetched is None else [self._fetched])}

    def joined(self, request: str, asked: NamedLinkage, names: PromptNames) -> None:
        self._waiting[request] = _Waiting(asked, names)

    def left(self, request: str) -> None:
        """It has its blocks: what was read for it is for its Load."""
        self._waiting.pop(request, None)

    def gone(self, request: str) -> None:
        """Nothing of it will be loaded."""
        self._waiting.pop(request, None)
        if self._fetched == request:
            self._fetched = None
            self._forgone.append(request)

    def orders(
        self, loads: Iterable[Load], making: Container[bytes], linking: Within, *, quiet: bool
    ) -> tuple[tuple[Fetch, ...], tuple[str, ...]]:
        """What the workers read from now on, and what no more. `loads`: of this step. `making`: links that are made
        now. `linking`: what breaks within it is a request's alone. `quiet`: nobody reads in order to go on.
        """
        if any(load.request == self._fetched for load in loads):
            self._fetched = None
        forgone, self._forgone = tuple(self._forgone), []
        fetch = self._next(making, linking) if quiet and self._fetched is None else None
        return () if fetch is None else (fetch,), forgone

    def _next(self, making: Container[bytes], linking: Within) -> Fetch | None:
        """The first that will not find what it lacks in the prefix cache."""
        for request, one in list(self._waiting.items()):
            with linking(request):
                share = one.names.share
                if share is not None and share.key in making:
                    continue
                del self._waiting[request]
                shared = one.asked.plan.question if share is None else share.tokens
                if one.names.held < shared and (pieces := one.asked.pieces()):
                    self._fetched = request
                    return Fetch(request, pieces)
        return None
