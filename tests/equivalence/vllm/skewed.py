"""Our connector on ranks of which the second has a slow disk that stops now and then."""

from __future__ import annotations

from itertools import cycle
from time import sleep
from typing import Any

from vllm.distributed import get_tensor_model_parallel_rank

from ragcache.engine.vllm.connector import KVConnectorRole, RagcacheConnector
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import DiskThreads
from ragcache.policy import Rates, Work

DELAYS_S = (0.0, 0.02, 0.0, 0.05, 0.01, 0.2, 0.0, 0.03)  # of the reads of the second rank, in turn
COMPUTE_S, LOAD_S = 1e-4, 1e-12  # that a row takes, and a byte, as the scheduler's side believes


class FixedRates(Rates):
    """That learn nothing more."""

    def __init__(self) -> None:
        super().__init__()
        for _ in range(60):
            super().observe(Work(rows=100.0), 100 * COMPUTE_S)
            super().observe_load("disk", 10**9, 10**9 * LOAD_S)

    def observe(self, work: Work, seconds: float) -> None:
        pass

    def observe_load(self, tier: str, nbytes: int, seconds: float) -> None:
        pass


class SkewedConnector(RagcacheConnector):
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any):
        super().__init__(vllm_config, role, kv_cache_config)
        if self._scheduler is not None:
            self._scheduler._pace.rates = FixedRates()

    def attach_runner(self, runner: Any) -> None:
        super().attach_runner(runner)
        delays = cycle(DELAYS_S if get_tensor_model_parallel_rank() else (0.0,))
        threads = DiskThreads(1, "test-skewed", 600.0)
        self.worker._loader = CakeLoader(threads, pace=lambda nbytes: sleep(next(delays)), claims=False)
