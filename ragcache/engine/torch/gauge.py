"""What passes take on a device that no answer was given on yet."""

from __future__ import annotations

from time import perf_counter

import torch

from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.loader import Block
from ragcache.rates import Rates, Work
from ragcache.types import Span

MANY, DEEP = 2048, 8192  # rows of a pass, and positions before its end
PLACED = 256  # tokens, of cached chunks
CLOSE = 0.25  # of a measurement: how far off a prediction may be
TURNS = 12  # at most; the first readies the kernels, and rates do not believe one measurement alone


def gauge(engine: TorchEngine, rates: Rates) -> None:
    """Measure passes of few and of many rows, and placing, until they are predicted. On a GPU the one says nothing of
    the other: both take as long as it takes to launch them, until there are many rows, and who knows only the passes of
    a link takes a prefill for far dearer than it is. It takes some tenths of a second there.
    """
    spec, deep = engine.spec, min(DEEP, engine.spec.max_tokens)
    try:
        buffer = engine.buffer(deep, apart=True)
    except torch.OutOfMemoryError:  # the model leaves little beside it
        deep = min(MANY, deep)
        buffer = engine.buffer(deep, apart=True)
    passes = gauged(min(MANY, deep), deep)
    kv = torch.zeros((2, spec.layers, spec.kv_heads, min(PLACED, deep), spec.head_dim), dtype=spec.dtype)
    block = Block(0, 0, kv[0], kv[1])
    for turn in range(TURNS):
        told = [(of_pass(rows), _computed(engine, buffer, rows)) for rows in passes]
        told.append((Work(placed=len(block.k[0, 0])), _placed(engine, buffer, block)))
        if not turn:
            continue
        for work, seconds in told:
            rates.observe(work, seconds)
        if all(abs(rates.seconds(work) / seconds - 1.0) < CLOSE for work, seconds in told):
            return


def gauged(most: int, deep: int) -> list[Span]:
    """Passes of so many rows at most and over so many positions, that tell rates apart: one row, many, as many as there
    can be, and many behind others. Without the last two all that a long pass takes more than a short one, which is
    bound by its weights, would be put down to what rows attend to, and a prefill of four times the length taken for
    several times as dear as it is.
    """
    many = min(MANY, most)
    return sorted(
        {Span(0, 1), Span(0, many), Span(0, most), Span(deep - many, deep)}, key=lambda one: (one.end, one.start)
    )


def of_pass(rows: Span) -> Work:
    return Work.of_rows(rows.start, rows.end) + Work(passes=1)


def _computed(engine: TorchEngine, buffer: KVBuffer, rows: Span) -> float:
    engine.synchronize()
    started = perf_counter()
    engine.compute([0] * len(rows), range(rows.start, rows.end), buffer)
    engine.synchronize()
    return perf_counter() - started


def _placed(engine: TorchEngine, buffer: KVBuffer, block: Block) -> float:
    engine.synchronize()
    started = perf_counter()
    engine.place_block(buffer, block)
    engine.synchronize()
    return perf_counter() - started
