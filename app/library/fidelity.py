"""How far answers over a collection's KV are from a full recompute, as measured on questions to its own texts."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.ingestion import IngestResult
from app.library.catalog.records import Collection
from ragcache.errors import ConfigError
from ragcache.linking import make_linker
from ragcache.linking.auto import Auto
from ragcache.linking.base import Linker

# An ingest measures it behind so many tokens whose KV it has computed; it takes at most a twentieth of that.
DUE_TOKENS = 300_000
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Calibration:
    """It counts for prompts of the model and System segment that it was measured with."""

    scale: float  # and power, of what `auto` predicts
    power: float
    kl: float  # measured, in nats a token, with what `auto` repairs by default
    rank: float | None  # Spearman's correlation of predicted and measured; None where one of them is always the same
    questions: int
    chunks: int  # of the collection then
    fingerprint: str
    system: str
    linker: str | None = None  # that answers it near enough for the least compute (`ragcache tune --target`)
    target: str | None = None  # that this was chosen for, such as kl=0.02

    def check(self) -> None:
        """Raises TypeError, ArithmeticError or ConfigError for figures that nothing can be predicted by."""
        if type(self.chunks) is not int or not all(type(one) in (int, float) for one in (self.scale, self.power)):
            raise TypeError(f"scale={self.scale!r:.40}, power={self.power!r:.40}, chunks={self.chunks!r:.40}")
        Auto(scale=float(self.scale), power=float(self.power))
        if self.linker is not None:
            make_linker(self.linker)

    def counts_for(self, fingerprint: str, system: str) -> bool:
        return (self.fingerprint, self.system) == (fingerprint, system)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, collection: Collection) -> Calibration | None:
        """None also for what another version has written in another form."""
        kept = collection.fidelity
        if kept is None:
            return None
        try:
            found = cls(**kept)
            found.check()
        except (TypeError, ValueError, ArithmeticError, ConfigError) as error:
            log.warning("how far answers of collection %r are off cannot be read (%s)", collection.name, error)
            return None
        return found


def tuned_linker(collection: Collection, fingerprint: str, system: str) -> Linker | None:
    """That the collection was tuned to, for this model and System segment."""
    found = Calibration.of(collection)
    known = found is not None and found.linker is not None and found.counts_for(fingerprint, system)
    return make_linker(found.linker) if known and found and found.linker else None


def calibrated(linker: Linker, collection: Collection, fingerprint: str, system: str) -> Linker:
    """The linker, predicting by what was measured on the collection, where it predicts and is not told how."""
    # It was measured by a question read through all layers.
    if not isinstance(linker, Auto) or linker.depth != 1.0 or (linker.scale, linker.power) != (None, None):
        return linker
    found = Calibration.of(collection)
    if found is None or not found.counts_for(fingerprint, system):
        return linker
    return replace(linker, scale=found.scale, power=found.power)


def is_long(result: IngestResult) -> bool:
    """Whether an ingest has computed so much KV that to measure its answers is no matter."""
    computed = result.tokens * min(1.0, result.kv_variants / max(1, result.chunks))
    return not result.dry_run and computed >= DUE_TOKENS
