"""vLLM's worker, handing its model runner to the connector: `--worker-cls ragcache.engine.vllm.worker.SpanWorker`.

A connector has no way to the model otherwise, and a worker extension can only add methods.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.platforms import current_platform

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as PlatformWorker
else:
    from vllm.v1.worker.gpu_worker import Worker as PlatformWorker


class SpanWorker(PlatformWorker):
    """The platform's own worker, unchanged but for the hand-over."""

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        super().initialize_from_config(kv_cache_config)
        if has_kv_transfer_group():
            connector = get_kv_transfer_group()
            attach = getattr(connector, "attach_runner", None)
            if attach is not None:
                attach(self.model_runner)
