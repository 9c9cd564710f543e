"""What linking inside vLLM cannot serve, refused when the engine starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import vllm
from packaging.version import Version

from ragcache.errors import ConfigError, ModelError

TESTED = ("0.32", "0.33")  # from, up to but without
LOAD_FORMATS = ("auto", "hf", "safetensors", "fastsafetensors", "instanttensor")
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
    yield from _weights(config.load_config)
    yield from _cache(config, kv_cache_config)


def _version(found: str) -> Iterator[str]:
    first, end = TESTED
    if not Version(first) <= Version(Version(found).base_version) < Version(end):
        yield f"vLLM is {found}, tested are versions from {first} up to {end}: install one of them"


def _setup(config: Any) -> Iterator[str]:
    transfer = config.kv_transfer_config
    if transfer.kv_load_failure_policy != "recompute":
        yield 'kv_load_failure_policy is "fail": set it to "recompute" in --kv-transfer-config'
    if transfer.kv_role != "kv_both":
        yield f'kv_role is {transfer.kv_role!r}: set it to "kv_both" in --kv-transfer-config'
    yield from _parallel(config.parallel_config)
    for name, told in (
        ("speculative_config", "speculative decoding is on: the drafter's KV of linked tokens would be missing"),
        ("lora_config", "LoRA is on: cached KV belongs to the base model alone"),
        ("diffusion_config", "the model is a diffusion model: its tokens are not computed from left to right"),
        ("weight_transfer_config", "weights may be replaced while it runs: cached KV belongs to those of the folder"),
    ):
        if getattr(config, name, None) is not None:
            yield told
    if not config.scheduler_config.enable_chunked_prefill:
        yield "chunked prefill is off: a linked prompt is computed in slices; leave --no-enable-chunked-prefill out"
    if getattr(config.attention_config, "use_non_causal", False):
        yield "attention is not causal: a chunk's KV would depend on what follows it"


def _parallel(parallel: Any) -> Iterator[str]:
    if parallel.worker_cls != WORKER:
        yield f"the worker is {parallel.worker_cls}: start with --worker-cls {WORKER}"
    for name, told in (
        ("pipeline_parallel_size", "pipeline parallelism: a layer's KV must lie on every rank"),
        ("decode_context_parallel_size", "decode context parallelism: a block's tokens are spread over ranks"),
        ("prefill_context_parallel_size", "prefill context parallelism: a prompt's tokens are spread over ranks"),
    ):
        size = getattr(parallel, name, 1)
        if size > 1:
            yield f"{name} is {size}; unsupported: {told}"
    if parallel.data_parallel_size > 1 and parallel.is_moe_model:
        yield "a mixture of experts is data-parallel: its ranks must run every pass together, and ours are their own"
    if parallel.enable_dbo:
        yield "--enable-dbo cuts a pass into two: rows that join it would be cut off"


def _model(model: Any) -> Iterator[str]:
    text = model.hf_text_config
    if getattr(model, "use_mla", False):
        yield "the model uses multi-head latent attention: its cache holds no K and V per head"
    if getattr(model, "quantization", None):
        yield f"the weights are quantised ({model.quantization}): the torch engine reads no such weights"
    if getattr(model, "is_hybrid", False):
        yield "the model mixes attention with recurrent layers: their state cannot be cached by chunk"
    if getattr(model, "is_encoder_decoder", False):
        yield "the model has an encoder: its decoder's KV depends on another input than the prompt"
    kinds = set(getattr(text, "layer_types", None) or ())
    window = getattr(text, "sliding_window", None)
    if kinds - {"full_attention"} or (window and not kinds and getattr(text, "use_sliding_window", True)):
        yield f"the model attends through a sliding window ({window} tokens): a cached chunk would need another mask"
    if getattr(text, "attention_chunk_size", None):
        yield f"the model attends within pieces of {text.attention_chunk_size} tokens: a chunk would be cut elsewhere"
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("mrope_section"):
        yield "the model uses M-RoPE: a position is more than one number"
    if rope.get("rope_type") == "dynamic":
        yield "the model uses dynamic NTK: its angles depend on the prompt's length"
    yield from _inputs(model)
    yield from _code(model)


def _inputs(model: Any) -> Iterator[str]:
    """A linked prompt is named by its token ids alone."""
    if getattr(model, "runner_type", "generate") != "generate":
        yield f"the model is run for {model.runner_type}: only generation computes on over cached KV"
    if getattr(model, "enable_prompt_embeds", False):
        yield "--enable-prompt-embeds: what stands in a prompt would not be told by its tokens"
    media = getattr(model, "multimodal_config", None)
    if media is not None and not media.language_model_only:
        yield (
            "the model takes images or other media: what stands before a chunk would not be told by its tokens; "
            "start with --language-model-only"
        )


def _code(model: Any) -> Iterator[str]:
    """What computes KV is what the fingerprint names."""
    if getattr(model, "trust_remote_code", False) and getattr(model.hf_config, "auto_map", None):
        yield "the model brings code of its own, which no fingerprint covers: leave --trust-remote-code out"
    if getattr(model, "model_class_overrides", None):
        yield "--model-class-overrides: another class computes other KV than the model's own"
    if getattr(model, "config_format", "auto") not in ("auto", "hf"):
        yield f"--config-format {model.config_format}: caches are named by config.json; leave it out"


def _weights(load: Any) -> Iterator[str]:
    if load.load_format not in LOAD_FORMATS:
        yield (
            f"--load-format {load.load_format}: caches are named by the bytes of the folder's safetensors, which it "
            f"may not read; choose from {', '.join(LOAD_FORMATS)}"
        )


def _cache(config: Any, kv_cache_config: Any) -> Iterator[str]:
    kind = str(config.cache_config.cache_dtype)
    if kind not in ("auto", str(config.model_config.dtype).removeprefix("torch.")):
        yield f"the KV cache is {kind}: linked KV has the model's own number format; leave --kv-cache-dtype out"
    if config.cache_config.kv_sharing_fast_prefill:
        yield "--kv-sharing-fast-prefill leaves out tokens of a prompt in some layers: their KV would be missing"
    if config.cache_config.kv_offloading_size is not None:
        yield "--kv-offloading-size puts another connector beside ours: leave it out"
    if len(kv_cache_config.kv_cache_groups) != 1:
        yield f"the KV cache has {len(kv_cache_config.kv_cache_groups)} groups of layers: linking needs one"


def only_group(runner: Any) -> Any:
    """Of the layers that hold KV. Raises ModelError for a KV cache that is not one group of plain attention layers."""
    groups = [group for groups in runner.attn_groups for group in groups]
    if len(groups) != 1 or type(groups[0].kv_cache_spec).__name__ != "FullAttentionSpec":
        kinds = sorted({type(group.kv_cache_spec).__name__ for group in groups})
        raise ModelError(
            f"this model's KV cache has {len(groups)} groups of layers ({', '.join(kinds)}): linking needs one, with "
            "full attention in every layer"
        )
    return groups[0]
