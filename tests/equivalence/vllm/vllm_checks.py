"""What linking cannot serve is refused at the start, with the reason."""

from __future__ import annotations

from types import SimpleNamespace as Some
from typing import Any

import pytest

from ragcache.engine.vllm import checks
from ragcache.errors import ConfigError

TEXT = {"sliding_window": None, "layer_types": None, "rope_parameters": {"rope_type": "default"}}

MODEL = {"use_mla": False, "quantization": None, "is_hybrid": False, "dtype": "torch.bfloat16"}


def config(**changes: Any) -> Any:
    """As vLLM's, of a setup that is served; `changes` by dotted path, with __ for the dot."""
    made = Some(
        parallel_config=Some(worker_cls=checks.WORKER, pipeline_parallel_size=1, tensor_parallel_size=2),
        kv_transfer_config=Some(kv_load_failure_policy="recompute", kv_role="kv_both"),
        speculative_config=None,
        lora_config=None,
        model_config=Some(
            use_mla=False, quantization=None, is_hybrid=False, dtype="torch.bfloat16", hf_text_config=Some(**TEXT)
        ),
        cache_config=Some(cache_dtype="auto"),
    )
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = made
        for parent in parents:
            place = getattr(place, parent)
        setattr(place, last, value)
    return made


def test_a_setup_that_is_served() -> None:
    checks.refuse(config(), Some(kv_cache_groups=[1]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"parallel_config__worker_cls": "vllm.v1.worker.cpu_worker.CPUWorker"}, "--worker-cls"),
        ({"parallel_config__pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"kv_transfer_config__kv_load_failure_policy": "fail"}, "recompute"),
        ({"kv_transfer_config__kv_role": "kv_consumer"}, "kv_both"),
        ({"speculative_config": Some()}, "speculative"),
        ({"lora_config": Some()}, "LoRA"),
        ({"model_config__use_mla": True}, "latent"),
        ({"model_config__quantization": "awq"}, "awq"),
        ({"model_config__is_hybrid": True}, "recurrent"),
        ({"model_config__hf_text_config__sliding_window": 128}, "sliding window"),
        ({"model_config__hf_text_config__layer_types": ["full_attention", "sliding_attention"]}, "sliding window"),
        ({"model_config__hf_text_config__rope_parameters": {"mrope_section": [1, 2]}}, "M-RoPE"),
        ({"model_config__hf_text_config__rope_parameters": {"rope_type": "dynamic"}}, "dynamic NTK"),
        ({"cache_config__cache_dtype": "fp8"}, "fp8"),
    ],
)
def test_what_is_not(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        checks.refuse(config(**change), Some(kv_cache_groups=[1]))


def test_all_reasons_at_once() -> None:
    with pytest.raises(ConfigError, match=r"(?s)LoRA.*2 groups"):
        checks.refuse(config(lora_config=Some()), Some(kv_cache_groups=[1, 2]))


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "1.0"])
def test_another_vllm(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.vllm, "__version__", version)
    with pytest.raises(ConfigError, match=version):
        checks.refuse(config(), Some(kv_cache_groups=[1]))
