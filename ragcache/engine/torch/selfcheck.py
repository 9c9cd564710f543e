"""Does our forward compute what the model does? Each of its steps is given what the model's own step was given, so that
rounding does not grow from one to the next, and a single row that is off shows. Structure alone does not show a soft
cap, a multiplier, how far positions are turned, or a query that is scaled by its position.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers import DynamicCache

from ragcache.engine.agreement import ANGLE, closeness, own_errors, row_errors, sampled_positions
from ragcache.engine.torch.attention import attend, row_blocks
from ragcache.engine.torch.decoder import Decoder, KVBuffer, Tap
from ragcache.errors import ModelError

WINDOW = 4  # tokens


@dataclass(frozen=True)
class Step:
    """One that was computed by both."""

    name: str
    errors: torch.Tensor  # [n] of rows
    allowed: torch.Tensor  # [n]

    @property
    def excess(self) -> torch.Tensor:
        """[n] above 1 where rounding does not explain the error; inf for nan."""
        return (self.errors / self.allowed).nan_to_num(torch.inf, torch.inf)


class _Witness(TorchFunctionMode):
    """Keeps what the model's own forward goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.attention: list[tuple[torch.Tensor, torch.Tensor]] = []  # q and what it reads [heads, n, head_dim]
        self.hidden: list[torch.Tensor] = []  # into each layer and the last norm [n, hidden]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention:
            self.attention.append((args[0][0], out[0]))
        return out

    def see(self, module: nn.Module, args: Any) -> None:
        self.hidden.append(args[0][0])


class _Given(Tap):
    """Sees our q, and goes on with what the model's own attention has given."""

    def __init__(self, attended: torch.Tensor):
        self._attended = attended.transpose(0, 1).flatten(1)  # [n, heads * head_dim]
        self.q: torch.Tensor

    def attend(self, layer: int, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        self.q = q
        return self._attended


def check_against(model: transformers.PreTrainedModel, decoder: Decoder) -> None:
    """Raises ModelError, with the first step that differs."""
    places = sampled_positions(int(model.config.max_position_embeddings))
    for step in steps(model, decoder, places):
        worst = int(step.excess.argmax())
        if step.excess[worst] > 1:
            window = getattr(model.config, "sliding_window", None)
            told = f", which may be by its sliding window ({window} tokens)" if window else ""
            raise ModelError(
                f"{model.config.model_type} does not compute standard RoPE attention: {step.name} from ours by "
                f"{float(step.errors[worst]):.1%} at position {places[worst]}{told}. It is not supported"
            )


@torch.inference_mode()
def steps(model: transformers.PreTrainedModel, decoder: Decoder, places: list[int]) -> Iterator[Step]:
    """A few random tokens that stand all over the model's context, step by step."""
    device, dtype = decoder.embed.weight.device, decoder.embed.weight.dtype
    count, allowed = len(places), 2 * closeness(dtype)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.vocab_size, (count,), generator=generator).to(device)
    spread, rows = torch.tensor(places, device=device), torch.arange(count, device=device)
    witness, theirs = _run(model, decoder, ids, spread)

    def step(name: str, ours: torch.Tensor, own: torch.Tensor, angles: float | torch.Tensor = 0.0) -> Step:
        errors = own_errors(ours, own) if ours.dim() == 2 else row_errors(ours, own)
        return Step(name, errors, angles + torch.full_like(errors, allowed))

    yield step("its embeddings differ", decoder.embed(ids), witness.hidden[0])
    shape = (2, len(decoder.layers), decoder.kv_heads, count, decoder.dim)
    buffer = KVBuffer(torch.empty(shape, dtype=dtype, device=device))
    near = replace(decoder, rope=replace(decoder.rope, cos=decoder.rope.cos[spread], sin=decoder.rope.sin[spread]))
    blocks = row_blocks(rows, dtype)
    for index, cached in enumerate(theirs.past_key_values.layers):
        q, read = witness.attention[index]
        given = _Given(read)
        hidden = near.forward(witness.hidden[index], rows, buffer, range(index, index + 1), given)
        yield step(f"K of layer {index} differs", buffer.k[index], cached.keys[0], ANGLE * spread)
        yield step(f"V of layer {index} differs", buffer.v[index], cached.values[0])
        yield step(f"Q of layer {index} differs", given.q, q, ANGLE * spread)
        ours = attend(q, cached.keys[0], cached.values[0], blocks, decoder.scale).view(count, decoder.heads, -1)
        yield step(f"what layer {index} reads differs", ours.transpose(0, 1), read)
        yield step(f"what layer {index} gives differs", hidden, witness.hidden[index + 1])
    yield step("its logits differ", decoder.logits(witness.hidden[-1]), theirs.logits[0])


def _run(
    model: transformers.PreTrainedModel, decoder: Decoder, ids: torch.Tensor, positions: torch.Tensor
) -> tuple[_Witness, Any]:
    witness, inner = _Witness(), cast(Any, model).model
    with ExitStack() as hooks:
        for norm in (*(layer.input_layernorm for layer in inner.layers), inner.norm):
            hooks.callback(norm.register_forward_pre_hook(witness.see).remove)
        hooks.enter_context(_as_checked(model))
        # With a mask of its own: transformers takes gaps between positions for the ends of prompts.
        mask, cache = torch.ones_like(ids)[None], DynamicCache()
        with witness:
            theirs = model(ids[None], position_ids=positions[None], attention_mask=mask, past_key_values=cache)
    found, count = (len(witness.attention), len(witness.hidden)), len(decoder.layers)
    if found != (count, count + 1):
        raise ModelError(f"{model.config.model_type} attends {found[0]} times in {count} layers: it is not supported")
    return witness, theirs


@contextmanager
def _as_checked(model: transformers.PreTrainedModel) -> Iterator[None]:
    """Attention of which a witness sees what it is given, and through a window, where one is set, that shows in a few
    tokens: layers of some families heed it whatever `layer_types` says, and those of others not at all.
    """
    config: Any = model.config
    own, window = config._attn_implementation, getattr(config, "sliding_window", None)
    model.set_attn_implementation("sdpa")
    try:
        if window:
            config.sliding_window = min(window, WINDOW)
        yield
    finally:
        if window:
            config.sliding_window = window
        model.set_attn_implementation(own)
