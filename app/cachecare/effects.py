"""What would be done to the KV of a collection by hand, told before; and what it costs against what it saves.

Seconds are measured, or estimated by the engine's running rates, or not known: they say which. What clients are told as
it is (`TimeTold`, `PaidBack`) has the name and the words of the HTTP schema.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.cachecare import CollectionShare, shares
from app.cachecare.eviction import evictable
from app.cachecare.history import running_rates
from app.library import Library
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import CacheTally
from app.library.identities import current_identity
from app.library.kv import FileTally, border_around, families_of, has_kv, with_kv
from app.library.pinning import PINNED_SHARE, pinnable, told_items
from app.models import Models
from ragcache.rates import Work
from ragcache.store.folder import CacheFolder, Item

Basis = Literal["measured", "estimated"]


@dataclass(frozen=True)
class TimeTold:
    """`measured`: at the pace of this collection so far; `estimated`: by the running rates; None where neither is."""

    seconds: float | None
    basis: Basis | None


@dataclass(frozen=True)
class WarmingEffect:
    """What is missing. Bytes are reckoned, as an ingest reckons them."""

    chunks: int
    tokens: int
    nbytes: int
    takes: TimeTold


@dataclass(frozen=True)
class EvictionEffect:
    """What would go, and what it would take to compute it again."""

    gone: FileTally
    tokens: int
    again: TimeTold


@dataclass(frozen=True)
class PinningEffect:
    """What would be kept; bytes of all pins then, within a border None, and how many there may be."""

    kept: FileTally
    pinned: int | None
    most: int


@dataclass(frozen=True)
class PaidBack:
    """What was measured: seconds of ingests and warming, and by how much the first token of an answer came sooner than
    without cache, on average of those that were compared. None where nothing was.
    """

    captured_s: float | None
    saved_s: float | None
    compared: int
    questions: int | None  # after which it has paid; None also where nothing is saved
    answers: int  # so far


class CacheEffects:
    """On one collection, for whoever is served within `border`: he is not told what was computed to be kept, since of a
    text that others have too it is nothing.
    """

    def __init__(self, library: Library, models: Models, collection: Collection, border: str):
        self._library, self._models, self._collection, self._border = library, models, collection, border
        self._lengths = library.catalog.chunks.lengths(collection)
        ever = library.catalog.cache_history.ever(collection)
        self.history = replace(ever, captured=0, captured_s=0.0) if border else ever

    def share(self) -> CollectionShare:
        items = CacheFolder(self._models.settings.kv_folder).items() if has_kv(self._models.settings) else ()
        (found,) = shares(self._library, self._models, items, [self._collection], bordered=bool(self._border))
        return found

    def warming(self) -> WarmingEffect:
        from app.ingestion.estimate import KvSize  # it imports torch

        there = with_kv(self._models, self._lengths, self._border)
        missing = [tokens for name, tokens in self._lengths.items() if name not in there]
        size = KvSize(self._models.settings, self._models.template).of(missing)
        return WarmingEffect(len(missing), sum(missing), round(size.kv_bytes), self._time(missing))

    def eviction(self) -> EvictionEffect:
        items = self._told(evictable(self._library, self._models, self._collection))
        families = {one.family for one in items}
        tokens = [self._lengths[name] for name in self._named(families)]
        return EvictionEffect(FileTally.of(items), sum(tokens), self._time(tokens))

    def pinning(self) -> PinningEffect:
        found = pinnable(self._library, self._models, self._collection)
        pinned = None if self._border else found.pinned
        return PinningEffect(FileTally.of(self._told(found.items)), pinned, round(PINNED_SHARE * found.budget))

    def cost(self) -> PaidBack:
        return cost_of(self.history)

    def _told(self, items: list[Item]) -> list[Item]:
        return told_items(self._library, self._models, self._collection, items) if self._border else items

    def _named(self, families: set[str]) -> list[str]:
        """The collection's texts that these are of."""
        if not families:
            return []
        identity, names = current_identity(self._models), list(self._lengths)
        both = (families_of(identity, names, border) for border in ("", border_around(self._collection)))
        return [name for name, *own in zip(names, *both, strict=True) if families & set(own)]

    def _time(self, lengths: Sequence[int]) -> TimeTold:
        """Of computing chunks of these lengths: as this collection's took so far, else by the running rates."""
        if not lengths:
            return TimeTold(0.0, "measured")
        if self.history.captured:
            return TimeTold(sum(lengths) * self.history.captured_s / self.history.captured, "measured")
        rates = running_rates(self._models)
        if rates is None or not rates.settled:
            return TimeTold(None, None)
        return TimeTold(sum(rates.seconds(Work(passes=1) + Work.of_rows(0, tokens)) for tokens in lengths), "estimated")


def cost_of(history: CacheTally) -> PaidBack:
    """What answers left behind themselves was computed for them anyway, and counts as nothing."""
    captured_s = history.captured_s if history.captured else None
    saved_s = history.compared_s / history.compared if history.compared else None
    questions = None
    if captured_s is not None and saved_s is not None and saved_s > 0:
        questions = math.ceil(captured_s / saved_s)
    return PaidBack(captured_s, saved_s, history.compared, questions, history.answers)
