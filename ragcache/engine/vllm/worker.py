"""vLLM's worker, handing its model runner to the connector: `--worker-cls ragcache.engine.vllm.worker.SpanWorker`.

A connector has no way to the model otherwise, and a worker extension can only add methods.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.platforms import current_platform

from ragcache.engine.vllm.cores import Cores
from ragcache.engine.vllm.setup import files_of
from ragcache.errors import ConfigError, ModelError

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as PlatformWorker
else:
    from vllm.v1.worker.gpu_worker import Worker as PlatformWorker


class SpanWorker(PlatformWorker):
    """The platform's own worker, but for the hand-over and, on a CPU, for the cores that it leaves to others."""

    _cores: Cores | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._files = files_of(self.vllm_config)
        if current_platform.is_cpu():
            _count_plainly()

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        super().initialize_from_config(kv_cache_config)
        self._tell("attach_runner", self.model_runner)

    def compile_or_warm_up_model(self) -> Any:
        told = super().compile_or_warm_up_model()
        self._tell("warm_up")
        self._cores = Cores()
        return told

    def execute_model(self, *arguments: Any, **named: Any) -> Any:
        if self._cores is not None:
            self._cores.share()  # before attention is planned, since that is for a number of threads
        return super().execute_model(*arguments, **named)

    def get_kv_connector_handshake_metadata(self) -> Any:
        """Asked for once the scheduler's side has named the model: by files that must still be those that were loaded.
        Raises ModelError.
        """
        if files_of(self.vllm_config) != self._files:
            raise ModelError("the model's files changed while they were read: start again")
        return super().get_kv_connector_handshake_metadata()

    def _tell(self, name: str, *arguments: Any) -> None:
        """Our connector, where there is one. Raises ConfigError for another, which may hide ours from its worker."""
        if not has_kv_transfer_group():
            return
        connector = get_kv_transfer_group()
        if not hasattr(connector, name):
            raise ConfigError(
                f"the connector is {type(connector).__name__}: this worker serves RagcacheConnector alone, which "
                "cannot be one of several"
            )
        getattr(connector, name)(*arguments)


def _count_plainly() -> None:
    """vLLM compiles one comparison at the first answer that tells logprobs: for ten seconds, on the thread that all
    answers need, and by a C++ compiler that the machine may lack.
    """
    from vllm.v1.sample import sampler

    compiled = sampler.batched_count_greater_than
    sampler.batched_count_greater_than = getattr(compiled, "_torchdynamo_orig_callable", compiled)
