"""Our connector on ranks of which the second has a slow disk that stops now and then."""

from __future__ import annotations

import sys
from itertools import cycle
from time import sleep
from typing import Any

from vllm.distributed import get_tensor_model_parallel_rank

from ragcache.engine.vllm.connector import KVConnectorRole, RagcacheConnector
from ragcache.engine.vllm.orders import Load
from ragcache.engine.vllm.placement import ReadAhead
from ragcache.loader import Loading, climb
from ragcache.loader.cake import CakeLoader
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.threads import DiskThreads
from ragcache.rates import Rates, Work

DELAYS_S = (0.0, 0.04, 0.0, 0.1, 0.02, 0.3, 0.0, 0.06)  # of the reads of the second rank, in turn


class FixedRates(Rates):
    """What is computed here takes no time, so rates that learnt would have all of it computed."""

    def __init__(self, compute_s: float = 1e-3) -> None:
        super().__init__({"work": [0.0, compute_s, 0.0, 0.0], "loads": {"disk": [0.0, 1.5e-6, 0.1]}})

    def observe(self, work: Work, seconds: float) -> None:
        pass

    def observe_load(self, tier: str, nbytes: int, seconds: float) -> None:
        pass


class SkewedConnector(RagcacheConnector):
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any):
        super().__init__(vllm_config, role, kv_cache_config)
        if self._scheduler is not None:
            self._scheduler.pace.rates = FixedRates()

    def attach_runner(self, runner: Any) -> None:
        super().attach_runner(runner)
        delays = cycle(DELAYS_S if get_tensor_model_parallel_rank() else (0.0,))
        threads = DiskThreads(1, "test-skewed", 600.0)
        self.worker.loader = CakeLoader(threads, pace=lambda nbytes: sleep(next(delays)), claims=False)
        self._tell_of(self.worker._fetched)

    def _tell_of(self, fetched: ReadAhead) -> None:
        """In the log, which prompts had been read, in part or whole, before they had their blocks."""
        take, rank = fetched.take, get_tensor_model_parallel_rank()

        def told(load: Load) -> Loading | None:
            loading = take(load)
            if loading is not None:
                sys.stderr.write(f"rank {rank} had begun to read {load.request}\n")
            return loading

        fetched.take = told  # type: ignore[method-assign]


class LayeredConnector(RagcacheConnector):
    """Each layer by itself, from disks that are slow at other times; all that is read would come amid the pass."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any):
        super().__init__(vllm_config, role, kv_cache_config)
        climb.READ_BYTES = 1
        if self._scheduler is not None:
            self._scheduler.pace.rates = FixedRates(compute_s=1.0)

    def attach_runner(self, runner: Any) -> None:
        super().attach_runner(runner)
        rank = get_tensor_model_parallel_rank()
        delays = cycle(DELAYS_S[rank:] + DELAYS_S[:rank])
        threads = DiskThreads(1 + rank, "test-layers", 600.0)
        self.worker.loader = LayerwiseLoader(threads, pace=lambda nbytes: sleep(next(delays) / 4))
        self.worker._rates = FixedRates()
