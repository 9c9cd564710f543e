"""What vLLM's log and its Prometheus endpoint show of us."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from ragcache.engine.vllm.outcomes import FAMILIES


@dataclass
class LinkStats(KVConnectorStats):
    """Totals since the last step, by `family/kind`."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        return LinkStats(dict(Counter(self.data) + Counter(other.data)))

    def reduce(self) -> dict[str, int | float]:
        return {name: round(value, 3) for name, value in sorted(self.data.items())}

    def is_empty(self) -> bool:
        return not self.data


class LinkPromMetrics(KVConnectorPromMetrics):
    """One counter per family, with a label for the kind."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Mapping[type, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            family: self._counter_cls(name=f"ragcache:{family}", documentation=told, labelnames=[*labelnames, "kind"])
            for family, told in FAMILIES.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            family, kind = name.split("/", 1)
            self._counters[family].labels(*self.per_engine_labelvalues[engine_idx], kind).inc(value)
