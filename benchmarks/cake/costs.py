"""What each block of a prompt takes by itself, and the best that two pointers could do with that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from statistics import median

from app.models.loading import TorchModel
from benchmarks.cake import PAPER_RATIO
from benchmarks.cake.conditions import Conditions
from benchmarks.timing import first_token, interleaved, timed
from ragcache.cache import ChunkCache
from ragcache.engine import EngineSpec
from ragcache.loader.sequential import SequentialLoader
from ragcache.slices import slices
from ragcache.store.findings import DISK
from ragcache.types import Chunk, Segment, Span

UNITS = 2 * 2  # bytes of K and of V in 16 bits, for each element


@dataclass(frozen=True)
class BlockCosts:
    """Of the System segment and the chunks in the order of the prompt, those of a long chunk by its slices."""

    computes: Sequence[float]  # seconds of each behind those before it, on the whole device
    nbytes: Sequence[float]
    linked: float  # seconds of planning, of the question, of its probe and of repair, where all is loaded
    plain: float  # the same where all is computed

    def at(self, computes: Sequence[float]) -> BlockCosts:
        """As the machine is now, by what the same blocks take; the rest is slower or quicker by as much."""
        factor = sum(computes) / sum(self.computes)
        return replace(self, computes=computes, linked=factor * self.linked, plain=factor * self.plain)

    def optimum(self, conditions: Conditions, bytes_per_s: float, wait: float = 0.0) -> float:
        """Seconds with the best meeting point, from when the engine is free. `wait`: loading began so long before."""
        fronts = [0.0, *accumulate(self.computes)]
        backs = [sum(self.nbytes[place:]) / bytes_per_s for place in range(len(fronts))]
        device, disk = conditions.device, conditions.disk
        both = [
            max(device.after(wait, front), disk.after(0.0, back)) for front, back in zip(fronts, backs, strict=True)
        ]
        shares = [1 - back / backs[0] for back in backs]
        tails = [self.linked + (self.plain - self.linked) * share for share in shares]
        return min(device.after(until, tail) for until, tail in zip(both, tails, strict=True)) - wait


def measured_costs(
    parts: TorchModel, cache: ChunkCache, segments: Sequence[Segment], nbytes: Sequence[int], linker: str, rounds: int
) -> BlockCosts:
    linked, plain = (
        _tail(
            ChunkCache(parts.engine, cache.store, "naive", keep_missed=False, loader=loader), segments, linker, rounds
        )
        for loader in (SequentialLoader(), SequentialLoader(front=len(segments)))
    )
    blocks = segments[:-1]
    found = [computes(parts, blocks) for _ in range(rounds)]
    shared = [
        whole * len(part) / len(block) for block, whole in zip(blocks, nbytes, strict=True) for part in _parts(block)
    ]
    return BlockCosts([median(one) for one in zip(*found, strict=True)], shared, linked, plain)


def computes(parts: TorchModel, blocks: Sequence[Segment]) -> list[float]:
    """Seconds of each block behind those before it; of a slice, what it adds to those of its block in one pass."""
    engine, start, seconds = parts.engine, 0, list[float]()
    buffer = engine.buffer(sum(map(len, blocks)))
    for block in blocks:
        ends = [part.end for part in _parts(block)]
        untils = [timed(partial(engine.compute, block.ids[:end], range(start, start + end), buffer)) for end in ends]
        # What is computed first takes no longer than with more behind it.
        least = list(accumulate(reversed(untils), min))[::-1]
        seconds += [after - before for before, after in pairwise([0.0, *least])]
        start += len(block)
    return seconds


def _parts(block: Segment) -> list[Span]:
    whole = Span(0, len(block))
    return slices(whole, DISK) if isinstance(block, Chunk) else [whole]


def _tail(cache: ChunkCache, segments: Sequence[Segment], linker: str, rounds: int) -> float:
    """All but what is loaded or computed before."""
    reports = interleaved({"tail": partial(first_token, cache, segments, linker)}, rounds)["tail"]
    return median(report.ttft_s - report.seconds["load"] for report in reports)


def plain_seconds(parts: TorchModel, system: Segment, chunks: Sequence[Chunk], rounds: int) -> float:
    """Of computing all chunks in one go: what a disk's speed is measured by."""
    engine, ids = parts.engine, [token for chunk in chunks for token in chunk.ids]
    buffer = engine.buffer(len(system) + len(ids))
    engine.compute(system.ids, range(len(system)), buffer)
    behind = range(len(system), len(system) + len(ids))
    return median([timed(partial(engine.compute, ids, behind, buffer)) for _ in range(rounds + 1)][1:])


def paper_seconds_per_byte(plain: float, spec: EngineSpec, kv_heads: int, chunks: Sequence[Chunk]) -> float:
    """Of a disk of 1 Gbps of the paper, where all chunks take so long to compute in one go; of a model with so many
    heads of K and V, whatever the KV is stored in.
    """
    elements = spec.layers * kv_heads * spec.head_dim * sum(map(len, chunks))
    return plain * PAPER_RATIO / (elements * UNITS)
