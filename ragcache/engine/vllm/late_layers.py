"""Upper layers of prompts that are computed over while they still come: before a layer is attended to, what lies there
is placed. It goes over what the layer's own rows write then, so they come after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter

from ragcache.engine.vllm.placement import Linking
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.errors import FAULTS, ModelError, StoreError
from ragcache.loader import Block, PieceLoaded, PieceLost


class LateLayers:
    """Of one pass, by request. Nothing is raised amid it: others' rows are in it, and other ranks wait."""

    def __init__(self, spans: SpanRunner, linkings: Mapping[str, Linking]):
        self._spans, self._linkings = spans, dict(linkings)
        self.lost: dict[str, Exception] = {}  # requests whose layers did not come, and why: their rows are not right
        self.read: list[PieceLoaded] = []  # of which all has come
        self.seconds = 0.0  # waited, and placed
        self._brings = False

    def __bool__(self) -> bool:
        return bool(self._linkings or self.lost)

    def bring(self, layer: int) -> None:
        """All up to this one. What it writes tells of its layer as the pass does."""
        if self._brings:
            return
        self._brings = True
        try:
            self._bring(layer)
        finally:
            self._brings = False

    def _bring(self, layer: int) -> None:
        started = perf_counter()
        for request, linking in tuple(self._linkings.items()):
            try:
                assert linking.loading is not None, request
                for delivery in linking.loading.layer(layer):
                    place(self._spans, linking, delivery.blocks)
                    self.read += [] if delivery.loaded is None else [delivery.loaded]
            except PieceLost as error:
                self._lose(request, StoreError(str(error)))
            except FAULTS as error:
                self._lose(request, error)
        self.seconds += perf_counter() - started

    def _lose(self, request: str, error: Exception) -> None:
        self.lost[request] = error
        self._linkings.pop(request, None)

    def end(self) -> None:
        """Of the pass: a layer that nobody asked for was attended to without what lies there."""
        for request in late(self._linkings, tuple(self._linkings)):
            self._lose(request, ModelError("the model's layers do not tell before they write: leave `loader` at cake"))


def late(linkings: Mapping[str, Linking], requests: Iterable[str]) -> dict[str, Linking]:
    """Those of the requests whose upper layers still come."""
    found = {request: linkings[request] for request in requests if request in linkings}
    return {request: linking for request, linking in found.items() if linking.loading and linking.loading.lags}


def place(spans: SpanRunner, linking: Linking, blocks: Iterable[Block]) -> None:
    """What has all layers goes into the paged cache later, with its neighbours."""
    for block in blocks:
        if not block.k.shape[2]:
            continue
        spans.place(block, linking.room)
        if len(block.k) == len(spans.layers):
            linking.fresh.append(block.span)
        else:
            spans.write(linking.room, [block.span], linking.blocks, linking.skip, block.layers)
