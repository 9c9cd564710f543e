"""In which order chunks are cheapest to link, where any order will do: the least is expected to be repaired, and the
exact front is the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragcache.address import border_behind, lead_address
from ragcache.planning import Candidate, ChunkSurroundings, candidates, stored_variants
from ragcache.scoring import Prefix
from ragcache.store.base import KVStore
from ragcache.store.eviction import VARIANTS
from ragcache.types import Chunk, System, VariantInfo, VariantKey

MOST = 24  # chunks that are looked at: each place is tried with each that is left; those behind stay where they are


def least_repaired(
    system: System, chunks: Sequence[Chunk], fingerprint: str, store: KVStore, incidents: list[str]
) -> list[int]:
    """Places of `chunks` in the order in which they had better stand behind System; as they stand where none is better.
    What the store could not tell joins the `incidents`: it says so once.

    Place by place the chunk is taken that loses least by standing there: what would be repaired of it, over what would
    be behind what it was computed behind. Of equal ones those that are exact, then as they stand.
    """
    stand = list(range(len(chunks)))
    tried = _Trial(system, chunks[:MOST], fingerprint, store, incidents)
    if len(tried.chunks) < 2 or not any(tried.infos):
        return stand
    order = tried.greedy()
    better = tried.cost(order) < tried.cost(stand[: len(order)])
    return [*order, *stand[len(order) :]] if better else stand


@dataclass(frozen=True, order=True)
class OrderCost:
    """The lower the better."""

    repaired: float  # tokens
    inexact: int  # tokens behind the exact front


def _likely(infos: Sequence[VariantInfo], there: set[str]) -> list[VariantInfo]:
    """Those that saw most of what may stand before them: there may be dozens, and each is tried at each place."""
    return sorted(infos, key=lambda info: -sum(one in there for one in info.key.context))[:VARIANTS]


class _Trial:
    """Chunks with what is stored of them, which is looked up once."""

    def __init__(self, system: System, chunks: Sequence[Chunk], fingerprint: str, store: KVStore, incidents: list[str]):
        self.chunks, self._system = chunks, system.hash
        borders = [border_behind(system.border, one) for one in chunks]
        keys = [
            lead_address(fingerprint, system.hash, one.hash, border)
            for one, border in zip(chunks, borders, strict=True)
        ]
        store.look_ahead([key.family for key in keys])
        found: dict[VariantKey, list[VariantInfo]] = {}
        for key in keys:
            if key not in found:
                found[key] = stored_variants(store, key, incidents, others=True)
        there = {one.hash for one in chunks}
        self.infos = [_likely(found[key], there) for key in keys]
        self._seen = [{one for info in infos for one in info.key.context} for infos in self.infos]

    def greedy(self) -> list[int]:
        prefix, order = Prefix(), list[int]()
        here = {place: self._judged(place, prefix) for place in range(len(self.chunks))}
        least = [self._best_of(place) for place in here]
        while here:
            _, _, place = min((tokens - least[at], not exact, at) for at, (tokens, exact) in here.items())
            del here[place]
            order.append(place)
            prefix.append(new := self.chunks[place].hash)
            for at, (tokens, _) in here.items():  # of the others it is no matter what comes before them
                if len(order) == 1 or not tokens or new in self._seen[at]:
                    here[at] = self._judged(at, prefix)
        return order

    def cost(self, order: Sequence[int]) -> OrderCost:
        prefix, repaired, front, total = Prefix(), 0.0, 0, 0
        for place in order:
            tokens, exact = self._judged(place, prefix)
            if exact and front == total:
                front += len(self.chunks[place])
            total += len(self.chunks[place])
            repaired += tokens
            prefix.append(self.chunks[place].hash)
        return OrderCost(repaired, total - front)

    def _best_of(self, place: int) -> float:
        """Where nothing stands before it but what one of its variants was computed behind."""
        there, own = {one.hash for one in self.chunks}, list[float]()
        for info in self.infos[place]:
            prefix = Prefix(one for one in info.key.context if one in there)
            own += [_share(found, prefix) for found in candidates([info], self._behind(prefix))]
        return min(own, default=1.0) * len(self.chunks[place])

    def _behind(self, prefix: Prefix) -> ChunkSurroundings:
        return ChunkSurroundings(prefix, self._system)

    def _judged(self, place: int, prefix: Prefix) -> tuple[float, bool]:
        """Tokens of a chunk that would be repaired behind others, and whether it is exact there."""
        found = candidates(self.infos[place], self._behind(prefix))
        if not found:
            return float(len(self.chunks[place])), False
        return _share(found[0], prefix) * len(self.chunks[place]), found[0].exact


def _share(best: Candidate, prefix: Prefix) -> float:
    """Of a chunk, by Cache-Craft's CFO, but that what saw no context is worst behind one (docs/log.md)."""
    if best.unchanged or best.reuse.exact:
        return 0.0
    return 1.0 if not best.info.key.context and len(prefix) else min(1.0, best.reuse.cfo())
