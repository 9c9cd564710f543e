"""What passes take on a device that no answer was given on yet."""

from __future__ import annotations

from time import perf_counter

import torch

from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.loader import Block
from ragcache.rates import Rates, Work

GAUGED = (1, 256, 2048)  # rows of passes
PLACED = 256  # tokens, of cached chunks
CLOSE = 0.25  # of a measurement: how far off a prediction may be
TURNS = 12  # at most; the first readies the kernels, and rates do not believe one measurement alone


def gauge(engine: TorchEngine, rates: Rates) -> None:
    """Measure passes of few and of many rows, and placing, until they are predicted. On a GPU the one says nothing of
    the other: both take as long as it takes to launch them, until there are many rows, and who knows only the passes of
    a link takes a prefill for far dearer than it is. It takes some tenths of a second there.
    """
    counts = [count for count in GAUGED if count <= engine.spec.max_tokens] or [1]
    buffer, spec = engine.buffer(max(counts), apart=True), engine.spec
    kv = torch.zeros((2, spec.layers, spec.kv_heads, min(PLACED, max(counts)), spec.head_dim), dtype=spec.dtype)
    block = Block(0, 0, kv[0], kv[1])
    for turn in range(TURNS):
        told = [(Work.of_rows(0, count) + Work(passes=1), _computed(engine, buffer, count)) for count in counts]
        told.append((Work(placed=len(block.k[0, 0])), _placed(engine, buffer, block)))
        if not turn:
            continue
        for work, seconds in told:
            rates.observe(work, seconds)
        if all(abs(rates.seconds(work) / seconds - 1.0) < CLOSE for work, seconds in told):
            return


def _computed(engine: TorchEngine, buffer: KVBuffer, count: int) -> float:
    engine.synchronize()
    started = perf_counter()
    engine.compute([0] * count, range(count), buffer)
    engine.synchronize()
    return perf_counter() - started


def _placed(engine: TorchEngine, buffer: KVBuffer, block: Block) -> float:
    engine.synchronize()
    started = perf_counter()
    engine.place_block(buffer, block)
    engine.synchronize()
    return perf_counter() - started
