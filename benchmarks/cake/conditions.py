"""A disk that is as slow as it is told to be, an engine that others use too, and a queue that a request waits in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any, ClassVar

from ragcache.engine.torch.engine import TorchEngine
from ragcache.loader import Loader, Loading, SegmentPiece
from ragcache.loader.throttle import Shares
from ragcache.policy import Rates
from ragcache.store.base import KVStore
from ragcache.store.findings import DISK

FASTEST = 25.0  # Gbps of a trace: the paper draws between none and that, and between none and all of the device
STEPS = 40  # of a trace, then it begins again


@dataclass(frozen=True)
class Conditions:
    """Of one case. A disk's schedule is in shares of `speed`."""

    speed: float  # Gbps of the paper
    disk: Shares
    device: Shares
    trace: int | None = None  # its number

    @classmethod
    def steady(cls, speed: float, share: float) -> Conditions:
        return cls(speed, Shares(), Shares.steady(share))

    @classmethod
    def drawn(cls, number: int, step: float, seed: int) -> Conditions:
        """New ones each so many seconds."""
        source = random.Random(f"{seed} {number}")
        disk, device = (Shares([(step, source.random()) for _ in range(STEPS)]) for _ in range(2))
        return cls(FASTEST, disk, device, number)


class SharedDevice:
    """The engine computes for a share of the time alone: after each forward others have their turn."""

    def __init__(self, schedule: Shares):
        self._schedule = schedule
        self.restart()

    def restart(self) -> None:
        self._began = perf_counter()

    @contextmanager
    def of(self, engine: TorchEngine) -> Iterator[None]:
        forward = engine.forward

        def paused(*given: Any, **named: Any) -> Any:
            started = perf_counter()
            found = forward(*given, **named)
            taken = perf_counter() - started
            until = self._began + self._schedule.after(started - self._began, taken)
            sleep(max(0.0, until - perf_counter()))
            return found

        engine.forward = paused  # type: ignore[method-assign]
        try:
            yield
        finally:
            engine.forward = forward  # type: ignore[method-assign]


class QueuedLoader(Loader):
    """Begins to load when a request arrives, which the engine takes up later."""

    overlaps: ClassVar[bool] = True

    def __init__(self, loader: Loader):
        self._loader = loader
        self._begun: tuple[Sequence[SegmentPiece], Loading] | None = None

    def arrived(self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None) -> None:
        begun = self._loader.ahead(pieces, store, rates) or self._loader.begin(pieces, store, rates)
        self._begun = (pieces, begun)

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        """What is on its way, if that is what is wanted now."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == pieces:
            return begun[1]
        if begun is not None:
            begun[1].stop()
        return self._loader.begin(pieces, store, rates, linking)

    def close(self) -> None:
        self._loader.close()


class ToldLoader(Loader):
    """By layers, as fast as the disk is known to be and the link to take."""

    def __init__(self, loader: Loader, bytes_per_s: float, linking: float):
        self._loader, self._linking = loader, linking
        self._rates = Rates({"work": [0.0, 0.0, 0.0, 0.0], "loads": {DISK: [0.0, 1.0 / bytes_per_s, 0.1]}})

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        return self._loader.begin(pieces, store, self._rates, self._linking)

    @property
    def whole(self) -> Loader:
        return self._loader.whole

    def close(self) -> None:
        self._loader.close()
