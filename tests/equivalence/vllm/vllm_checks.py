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
        parallel_config=Some(
            worker_cls=checks.WORKER,
            pipeline_parallel_size=1,
            tensor_parallel_size=2,
            data_parallel_size=1,
            is_moe_model=True,
            enable_dbo=False,
        ),
        kv_transfer_config=Some(kv_load_failure_policy="recompute", kv_role="kv_both"),
        speculative_config=None,
        lora_config=None,
        model_config=Some(
            use_mla=False,
            quantization=None,
            is_hybrid=False,
            dtype="torch.bfloat16",
            hf_text_config=Some(**TEXT),
            hf_config=Some(auto_map={"AutoModel": "other.Model"}),
            multimodal_config=None,
        ),
        cache_config=Some(cache_dtype="auto", kv_sharing_fast_prefill=False, kv_offloading_size=None),
        load_config=Some(load_format="auto"),
        scheduler_config=Some(enable_chunked_prefill=True),
        attention_config=Some(use_non_causal=False),
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
    media = Some(language_model_only=True)
    checks.refuse(config(model_config__multimodal_config=media), Some(kv_cache_groups=[1]))
    dense = {"parallel_config__data_parallel_size": 2, "parallel_config__is_moe_model": False}
    checks.refuse(config(**dense), Some(kv_cache_groups=[1]))


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
        ({"cache_config__kv_sharing_fast_prefill": True}, "kv-sharing-fast-prefill"),
        ({"cache_config__kv_offloading_size": 1.0}, "another connector"),
        ({"parallel_config__data_parallel_size": 2}, "experts is data-parallel"),
        ({"parallel_config__enable_dbo": True}, "enable-dbo"),
        ({"parallel_config__decode_context_parallel_size": 2}, "decode context"),
        ({"parallel_config__prefill_context_parallel_size": 2}, "prefill context"),
        ({"diffusion_config": Some()}, "diffusion"),
        ({"weight_transfer_config": Some()}, "weights may be replaced"),
        ({"scheduler_config__enable_chunked_prefill": False}, "chunked prefill is off"),
        ({"attention_config__use_non_causal": True}, "not causal"),
        ({"model_config__is_encoder_decoder": True}, "encoder"),
        ({"model_config__hf_text_config__attention_chunk_size": 8192}, "within pieces of 8192"),
        ({"model_config__runner_type": "pooling"}, "run for pooling"),
        ({"model_config__enable_prompt_embeds": True}, "enable-prompt-embeds"),
        ({"model_config__multimodal_config": Some(language_model_only=False)}, "--language-model-only"),
        ({"model_config__trust_remote_code": True}, "code of its own"),
        ({"model_config__model_class_overrides": {"A": "b:C"}}, "model-class-overrides"),
        ({"model_config__config_format": "mistral"}, "config-format mistral"),
        ({"load_config__load_format": "dummy"}, "load-format dummy"),
        ({"load_config__load_format": "pt"}, "load-format pt"),
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
