"""How far answers over a collection's KV are from a full recompute, as measured on questions to its own texts."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.library.catalog.records import Collection
from ragcache.errors import ConfigError
from ragcache.linking.auto import Auto
from ragcache.linking.base import Linker

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
            Auto(scale=found.scale, power=found.power)
        except (TypeError, ValueError, ConfigError) as error:
            log.warning("how far answers of collection %r are off cannot be read (%s)", collection.name, error)
            return None
        return found


def calibrated(linker: Linker, collection: Collection, fingerprint: str, system: str) -> Linker:
    """The linker, predicting by what was measured on the collection, where it predicts and is not told how."""
    if not isinstance(linker, Auto) or not linker.probes or (linker.scale, linker.power) != (None, None):
        return linker
    found = Calibration.of(collection)
    if found is None or (found.fingerprint, found.system) != (fingerprint, system):
        return linker
    return replace(linker, scale=found.scale, power=found.power)
