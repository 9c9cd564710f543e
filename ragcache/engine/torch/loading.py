"""From a transformers model to a Decoder, or a clear refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import nn
from transformers import DynamicCache
from transformers.utils import logging as talk

from ragcache.engine.agreement import row_errors, sampled_positions, tolerance, wrong_turn
from ragcache.engine.torch.decoder import Decoder, DecoderLayer, KVBuffer, linear, pack_linears
from ragcache.errors import ModelError
from ragcache.rope import Rope, head_dim

ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"}
LAYER_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
MLP_PARTS = {"gate_proj", "up_proj", "down_proj"}


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
    device = next(model.parameters()).device
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
        rope=Rope.from_config(config, device),
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        dim=dim,
        scale=scales.pop(),
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


def _layer(module: nn.Module, index: int) -> DecoderLayer:
    attention = _part(module, "self_attn")
    _refuse_strange(module, LAYER_PARTS, index)
    _refuse_strange(attention, ATTENTION_PARTS, index)
    _refuse_strange(_part(module, "mlp"), MLP_PARTS, index)
    qkv = _fuse([_part(attention, name) for name in ("q_proj", "k_proj", "v_proj")])
    pack_linears(attention, "o_proj")
    mlp = _part(module, "mlp")
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


@torch.inference_mode()
def _check_against(model: transformers.PreTrainedModel, decoder: Decoder) -> None:
    """Structure does not show a soft cap, an embedding multiplier, or how far positions are turned; a few tokens that
    stand all over the model's context do.
    """
    places = sampled_positions(int(model.config.max_position_embeddings))
    count, device, dtype = len(places), decoder.embed.weight.device, decoder.embed.weight.dtype
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.vocab_size, (count,), generator=generator).to(device)
    spread = torch.tensor(places, device=device)
    shape = (2, len(decoder.layers), decoder.kv_heads, count, decoder.dim)
    buffer = KVBuffer(torch.empty(shape, dtype=dtype, device=device))
    near = replace(decoder, rope=replace(decoder.rope, cos=decoder.rope.cos[spread], sin=decoder.rope.sin[spread]))
    hidden = near.forward(decoder.embed(ids), torch.arange(count, device=device), buffer, range(len(decoder.layers)))
    # With a mask of its own: transformers takes gaps between positions for the ends of prompts.
    theirs = model(
        ids[None], position_ids=spread[None], attention_mask=torch.ones_like(ids)[None], past_key_values=DynamicCache()
    )
    for reason in _differences(decoder.logits(hidden), buffer, theirs, places):
        raise ModelError(
            f"{model.config.model_type} does not compute standard RoPE attention: {reason}. It is not supported"
        )


def _differences(logits: torch.Tensor, buffer: KVBuffer, theirs: Any, places: list[int]) -> Iterator[str]:
    # The median: rounding alone may send single rows of 16 bits astray, what is computed wrongly shows in most.
    error = float(row_errors(logits[None], theirs.logits).median())
    if not error <= tolerance(buffer.k.dtype):
        yield f"its logits differ from ours by {error:.1%}"
    keys = [layer.keys[0] for layer in theirs.past_key_values.layers]  # rotated
    if wrong := wrong_turn(buffer.k[0], keys[0], places):
        yield f"K of its first layer differs from ours by {wrong[1]:.1%} at position {wrong[0]}"
    for index, (ours, own) in enumerate(zip(buffer.k, keys, strict=True)):
        error = float(row_errors(ours, own).median())
        if not error <= tolerance(ours.dtype):
            yield f"K of layer {index} differs from ours by {error:.1%}"
