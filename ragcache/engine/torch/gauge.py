"""What passes take on a device that no answer was given on yet."""

from __future__ import annotations

from time import perf_counter

from ragcache.engine.torch.engine import TorchEngine
from ragcache.rates import Rates, Work

GAUGED = (1, 256, 2048)  # rows of passes
CLOSE = 0.25  # of a measurement: how far off a prediction may be
TURNS = 12  # at most; the first readies the kernels, and rates do not believe one measurement alone


def gauge(engine: TorchEngine, rates: Rates) -> None:
    """Measure passes of few and of many rows until they are predicted. On a GPU the one says nothing of the other: both
    take as long as it takes to launch them, until there are many rows, and who knows only the passes of a link takes a
    prefill for far dearer than it is. It takes some tenths of a second there.
    """
    counts = [count for count in GAUGED if count <= engine.spec.max_tokens] or [1]
    buffer = engine.buffer(max(counts), apart=True)
    for turn in range(TURNS):
        off = 0.0
        for count in counts:
            work = Work.of_rows(0, count) + Work(passes=1)
            engine.synchronize()
            started = perf_counter()
            engine.compute([0] * count, range(count), buffer)
            engine.synchronize()
            seconds = perf_counter() - started
            if turn:
                rates.observe(work, seconds)
                off = max(off, abs(rates.seconds(work) / seconds - 1.0))
        if turn and off < CLOSE:
            return
