"""What linking inside vLLM cannot serve, refused when the engine starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import vllm
from packaging.version import Version

from ragcache.errors import ConfigError

TESTED = ("0.32", "0.33")  # from, up to but without
WORKER = "ragcache.engine.vllm.worker.SpanWorker"


def check_version() -> str:
    """vLLM's. Raises ConfigError for one that linking was not tested with."""
    for reason in _version(vllm.__version__):
        raise ConfigError(reason)
    return str(vllm.__version__)


def refuse(config: Any, kv_cache_config: Any) -> None:
    """Raises ConfigError with every reason."""
    found = list(reasons(config, kv_cache_config))
    if found:
        raise ConfigError("vLLM cannot link cached chunks as it is set up:\n" + "\n".join(f"- {one}" for one in found))


def reasons(config: Any, kv_cache_config: Any) -> Iterator[str]:
    yield from _version(vllm.__version__)
    yield from _setup(config)
    yield from _model(config.model_config)
    yield from _cache(config, kv_cache_config)


def _version(found: str) -> Iterator[str]:
    first, end = TESTED
    if not Version(first) <= Version(Version(found).base_version) < Version(end):
        yield f"vLLM is {found}, tested are versions from {first} up to {end}: install one of them"


def _setup(config: Any) -> Iterator[str]:
    parallel, transfer = config.parallel_config, config.kv_transfer_config
    if parallel.worker_cls != WORKER:
        yield f"the worker is {parallel.worker_cls}: start with --worker-cls {WORKER}"
    if transfer.kv_load_failure_policy != "recompute":
        yield 'kv_load_failure_policy is "fail": set it to "recompute" in --kv-transfer-config'
    if transfer.kv_role != "kv_both":
        yield f'kv_role is {transfer.kv_role!r}: set it to "kv_both" in --kv-transfer-config'
    for name, told in (
        ("pipeline_parallel_size", "pipeline parallelism: a layer's KV must lie on every rank"),
        ("decode_context_parallel_size", "decode context parallelism: a block's tokens are spread over ranks"),
        ("prefill_context_parallel_size", "prefill context parallelism: a prompt's tokens are spread over ranks"),
    ):
        size = getattr(parallel, name, 1)
        if size > 1:
            yield f"{name} is {size}; unsupported: {told}"
    if config.speculative_config is not None:
        yield "speculative decoding is on: the drafter's KV of linked tokens would be missing"
    if config.lora_config is not None:
        yield "LoRA is on: cached KV belongs to the base model alone"


def _model(model: Any) -> Iterator[str]:
    text = model.hf_text_config
    if getattr(model, "use_mla", False):
        yield "the model uses multi-head latent attention: its cache holds no K and V per head"
    if getattr(model, "quantization", None):
        yield f"the weights are quantised ({model.quantization}): the torch engine reads no such weights"
    if getattr(model, "is_hybrid", False):
        yield "the model mixes attention with recurrent layers: their state cannot be cached by chunk"
    kinds = set(getattr(text, "layer_types", None) or ())
    window = getattr(text, "sliding_window", None)
    if kinds - {"full_attention"} or (window and not kinds and getattr(text, "use_sliding_window", True)):
        yield f"the model attends through a sliding window ({window} tokens): a cached chunk would need another mask"
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("mrope_section"):
        yield "the model uses M-RoPE: a position is more than one number"
    if rope.get("rope_type") == "dynamic":
        yield "the model uses dynamic NTK: its angles depend on the prompt's length"


def _cache(config: Any, kv_cache_config: Any) -> Iterator[str]:
    kind = str(config.cache_config.cache_dtype)
    if kind not in ("auto", str(config.model_config.dtype).removeprefix("torch.")):
        yield f"the KV cache is {kind}: linked KV has the model's own number format; leave --kv-cache-dtype out"
    if len(kv_cache_config.kv_cache_groups) != 1:
        yield f"the KV cache has {len(kv_cache_config.kv_cache_groups)} groups of layers: linking needs one"
