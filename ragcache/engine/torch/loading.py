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

from ragcache.engine.torch.buffer import KVBuffer
from ragcache.engine.torch.decoder import Decoder, Layer
from ragcache.engine.torch.packing import PackedLinear, pack_linears, packs
from ragcache.errors import ModelError
from ragcache.rope import Rope, head_dim

ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"}
LAYER_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
MLP_PARTS = {"gate_proj", "up_proj", "down_proj"}
# Our forward against transformers' own, relative to the largest logit: what rounding alone explains.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 6e-2}
DEFAULT_TOLERANCE = 6e-2


def load_pretrained(path: Path | str, dtype: torch.dtype, device: torch.device) -> transformers.PreTrainedModel:
    """Read a local model folder; nothing is fetched."""
    try:
        with _no_loading_bar():
            loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
                str(path), dtype=dtype, local_files_only=True, attn_implementation="sdpa", output_loading_info=True
            )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
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
    device = next(model.parameters()).device
    heads = int(config.num_attention_heads)
    dim = head_dim(config)
    layers = tuple(_layer(module, index) for index, module in enumerate(_part(inner, "layers")))
    scale = float(getattr(inner.layers[0].self_attn, "scaling", dim**-0.5))
    decoder = Decoder(
        embed=_part(inner, "embed_tokens"),
        layers=layers,
        norm=_part(inner, "norm"),
        head=_part(model, "lm_head"),
        rope=Rope.from_config(config, device),
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        dim=dim,
        scale=scale,
    )
    _check_against(model, decoder)
    return decoder


def _refuse_windows(config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    if kinds - {"full_attention"} or (window and not kinds and getattr(config, "use_sliding_window", True)):
        raise ModelError(
            f"{config.model_type} attends through a sliding window ({window} tokens): a cached chunk would need "
            "another mask. Choose a model with full attention in every layer"
        )


def _part(module: nn.Module, name: str) -> Any:
    if not hasattr(module, name):
        raise ModelError(f"{type(module).__name__} has no {name!r}: not a decoder of the Llama family")
    return getattr(module, name)


def _layer(module: nn.Module, index: int) -> Layer:
    attention = _part(module, "self_attn")
    _refuse_strange(module, LAYER_PARTS, index)
    _refuse_strange(attention, ATTENTION_PARTS, index)
    _refuse_strange(_part(module, "mlp"), MLP_PARTS, index)
    qkv = _fuse([_part(attention, name) for name in ("q_proj", "k_proj", "v_proj")])
    pack_linears(attention, "o_proj")
    mlp = _part(module, "mlp")
    pack_linears(mlp, *MLP_PARTS)
    return Layer(
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
    if packs(weight):
        return PackedLinear(weight, bias)
    fused = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    fused.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        fused.bias = nn.Parameter(bias, requires_grad=False)
    return fused


@torch.inference_mode()
def _check_against(model: transformers.PreTrainedModel, decoder: Decoder) -> None:
    """Structure does not show a soft cap or an embedding multiplier; a few logits do."""
    count = min(24, model.config.max_position_embeddings)
    device = decoder.embed.weight.device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.vocab_size, (count,), generator=generator).to(device)
    positions = torch.arange(count, device=device)
    dtype = decoder.embed.weight.dtype
    shape = (2, len(decoder.layers), decoder.kv_heads, count, decoder.dim)
    buffer = KVBuffer(torch.empty(shape, dtype=dtype, device=device))
    hidden = decoder.forward(decoder.embed(ids), positions, buffer, range(len(decoder.layers)))
    ours, theirs = decoder.logits(hidden), model(ids[None], use_cache=False).logits[0].float()
    error = float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-6))
    if not error <= TOLERANCE.get(dtype, DEFAULT_TOLERANCE):
        raise ModelError(
            f"{model.config.model_type} does not compute standard RoPE attention: its logits differ from ours by "
            f"{error:.1%} of the largest. It is not supported"
        )
