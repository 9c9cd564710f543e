"""From a transformers model to a Decoder, or a clear refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import nn
from transformers.utils import logging as talk

from ragcache.engine.torch.decoder import Decoder, DecoderLayer, linear, pack_linears
from ragcache.engine.torch.selfcheck import check_against
from ragcache.errors import ModelError
from ragcache.rope import Rope, head_dim

ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"}
LAYER_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
MLP_PARTS = {"gate_proj", "up_proj", "down_proj"}
# Numbers of a configuration that change what is computed, in whatever family, by nothing that a layer's parts show. Not
# among them are those that the decoder follows: attention_multiplier and query_pre_attn_scalar stand in `scaling` of a
# layer's attention, the MLP runs with its own activation, and Rope has all of its own.
ADDED = (  # unless 0, false or none
    "alibi", "attention_chunk_size", "attention_k_eq_v", "attention_logit_cap", "attn_logit_softcapping",
    "attn_temperature_tuning", "clip_qkv", "final_logit_softcapping", "layer_rope_theta", "log_scaling_alpha",
    "num_kv_shared_layers", "prefix_lm", "use_bidirectional_attention",
)  # fmt: skip
MULTIPLIED = (  # unless 1, for all layers
    "attention_in_multiplier", "attention_out_multiplier", "attention_value_scale", "embedding_multiplier",
    "embedding_scale", "key_multiplier", "lm_head_multiplier", "logit_scale", "logits_mup_width_multiplier",
    "logits_scaling", "mlp_multipliers", "no_rope_layers", "residual_multiplier",
)  # fmt: skip
ROPE_KEYS = {  # that give a position its angles, and attention one factor for all positions
    "attention_factor", "beta_fast", "beta_slow", "factor", "finetuned", "high_freq_factor", "low_freq_factor",
    "max_position_embeddings", "mscale", "mscale_all_dim", "original_max_position_embeddings", "partial_rotary_factor",
    "rope_theta", "rope_type", "truncate", "type",
}  # fmt: skip
UNREAD = {("apply_yarn_scaling", True), ("attn_factor", 1), ("extrapolation_factor", 1)}  # vLLM's, which change nothing


def load_pretrained(path: Path | str, dtype: torch.dtype, device: torch.device) -> transformers.PreTrainedModel:
    """Read a local model folder; nothing is fetched."""
    try:
        with _no_loading_bar():
            loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
                str(path),
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                attn_implementation="sdpa",
                output_loading_info=True,
            )
    except (OSError, ValueError, TypeError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"cannot load the model in {path}: {_first_line(error)}") from error
    model, found = loaded
    if found["missing_keys"]:  # transformers would leave them at random
        raise ModelError(f"the model in {path} lacks weights, {min(found['missing_keys'])} among them: get it again")
    return model.to(device).eval()  # type: ignore[no-any-return]


@contextmanager
def _no_loading_bar() -> Iterator[None]:
    """transformers draws one even for a model that loads in an instant."""
    shown = talk.is_progress_bar_enabled()
    talk.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            talk.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def build_decoder(model: transformers.PreTrainedModel) -> Decoder:
    """Our forward over the model's weights. Raises ModelError, with the reason, for what it would compute wrongly."""
    config = model.config
    _refuse_windows(config)
    inner = _part(model, "model")
    rope = Rope.from_config(config, next(model.parameters()).device)
    _refuse_numbers(config)
    heads = int(config.num_attention_heads)
    dim = head_dim(config)
    layers = tuple(_layer(module, index) for index, module in enumerate(_part(inner, "layers")))
    scales = {float(getattr(layer.self_attn, "scaling", dim**-0.5)) for layer in inner.layers}
    if len(scales) > 1:
        raise ModelError(f"{config.model_type} scales attention by {sorted(scales)} in different layers: not supported")
    decoder = Decoder(
        embed=_part(inner, "embed_tokens"),
        layers=layers,
        norm=_part(inner, "norm"),
        head=_part(model, "lm_head"),
        rope=rope,
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        dim=dim,
        scale=scales.pop(),
    )
    check_against(model, decoder)
    return decoder


def _refuse_windows(config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    if kinds - {"full_attention"} or (window and not kinds and getattr(config, "use_sliding_window", True)):
        raise ModelError(
            f"{config.model_type} attends through a sliding window ({window} tokens): a cached chunk would need "
            "another mask. Choose a model with full attention in every layer"
        )


def _refuse_numbers(config: Any) -> None:
    rope = config.rope_parameters.items()
    strange = {key: value for key, value in rope if value and key not in ROPE_KEYS and (key, value) not in UNREAD}
    strange |= {name: value for name in ADDED if (value := getattr(config, name, None))}
    for name in MULTIPLIED:
        value = getattr(config, name, None)
        if any(one != 1 for one in (value if isinstance(value, (list, tuple)) else [value]) if one is not None):
            strange[name] = value
    if strange:
        listed = ", ".join(f"{name}={value!r:.40}" for name, value in strange.items())
        raise ModelError(f"{config.model_type} computes by {listed}, which the torch engine does not: not supported")


def _part(module: nn.Module, name: str) -> Any:
    if not hasattr(module, name):
        raise ModelError(f"{type(module).__name__} has no {name!r}: not a decoder of the Llama family")
    return getattr(module, name)


def _linear(module: nn.Module, name: str) -> nn.Linear:
    """Whose weight is all that it computes by: a quantised layer's is not, nor one's with an adapter."""
    part = _part(module, name)
    if type(part) is not nn.Linear:
        raise ModelError(f"{name!r} of {type(module).__name__} is no plain linear layer but {type(part).__name__}")
    return part


def _layer(module: nn.Module, index: int) -> DecoderLayer:
    attention = _part(module, "self_attn")
    _refuse_strange(module, LAYER_PARTS, index)
    _refuse_strange(attention, ATTENTION_PARTS, index)
    mlp = _part(module, "mlp")
    _refuse_strange(mlp, MLP_PARTS, index)
    qkv = _fuse([_linear(attention, name) for name in ("q_proj", "k_proj", "v_proj")])
    for owner, name in ((attention, "o_proj"), *((mlp, name) for name in sorted(MLP_PARTS))):
        _part(owner, name)
    pack_linears(attention, "o_proj")
    pack_linears(mlp, *MLP_PARTS)
    return DecoderLayer(
        input_norm=_part(module, "input_layernorm"),
        qkv=qkv,
        q_norm=getattr(attention, "q_norm", None),
        k_norm=getattr(attention, "k_norm", None),
        output=_part(attention, "o_proj"),
        post_norm=_part(module, "post_attention_layernorm"),
        mlp=mlp,
    )


def _refuse_strange(module: nn.Module, known: set[str], index: int) -> None:
    strange = {name for name, part in module.named_children() if any(True for _ in part.parameters())} - known
    if strange:
        raise ModelError(f"layer {index} of {type(module).__name__} has unknown parts {sorted(strange)}: not supported")


def _fuse(projections: list[nn.Linear]) -> nn.Module:
    """One matmul instead of three. The model's own parameters become views of the stack, so that no weight is held
    twice, unless packed: then the model, which the self-check runs, keeps the plain ones.
    """
    weight = torch.cat([projection.weight.detach() for projection in projections])
    bias = None
    if projections[0].bias is not None:
        bias = torch.cat([projection.bias.detach() for projection in projections])
    start = 0
    for projection in projections:
        stop = start + projection.weight.shape[0]
        projection.weight = nn.Parameter(weight[start:stop], requires_grad=False)
        if bias is not None:
            projection.bias = nn.Parameter(bias[start:stop], requires_grad=False)
        start = stop
    return linear(weight, bias)
