"""Our forward against the model's own, step by step: what is seen, and what is no reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

from ragcache.engine.agreement import sampled_positions
from ragcache.engine.torch.loading import build_decoder
from ragcache.engine.torch.selfcheck import check_against, steps
from ragcache.errors import ModelError
from tests.tiny import ROPES, SIZES, make_config, make_model, to_dtype

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SOUND: Mapping[str, dict[str, Any]] = {
    "Gemma": {"hidden_activation": "gelu_pytorch_tanh"},
    "Granite": {"attention_multiplier": 0.3},
    "Llama": {},
    "Mistral": {"sliding_window": None},
    "Olmo": {},
    "Qwen2": {},
    "Qwen3": {},
    "SeedOss": {},
    "SmolLM3": {"no_rope_layers": [1, 1, 1]},
}


def make(dtype: torch.dtype, kind: str = "Llama", rope: str = "default", **settings: Any) -> PreTrainedModel:
    config = getattr(transformers, f"{kind}Config")
    return to_dtype(make_model(config(**{**SIZES, "rope_parameters": dict(ROPES[rope]), **settings})), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("kind", SOUND)
def test_rounding_is_no_reason(kind: str, rope: str, dtype: torch.dtype) -> None:
    """Half of what is allowed is left, in every row."""
    model = make(dtype, kind, rope, **SOUND[kind])
    found = list(steps(model, build_decoder(model), sampled_positions(512)))
    assert len(found) == 2 + 5 * SIZES["num_hidden_layers"]
    assert max(float(step.excess.max()) for step in found) < 0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_queries_that_are_scaled_behind_three_quarters_of_the_context(dtype: torch.dtype) -> None:
    rope = dict(ROPES["default"], original_max_position_embeddings=384, llama_4_scaling_beta=0.0)
    model = make(dtype, "Ministral3", layer_types=None, rope_parameters=rope)
    decoder = build_decoder(model)
    model.config.rope_parameters["llama_4_scaling_beta"] = 0.1
    with pytest.raises(ModelError, match=r"ministral3 .*: Q of layer 0 differs from ours by .* at position [45]\d\d"):
        check_against(model, decoder)


def one_row(factor: float) -> Callable[[nn.Module, Any, torch.Tensor], torch.Tensor]:
    """A hook by which the last of the sampled positions but two comes out as something else."""

    def change(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
        changed = out.clone()
        changed[:, -3] *= factor
        return changed

    return change


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("model.embed_tokens", "its embeddings differ"),
        ("model.layers.1.self_attn.q_proj", "Q of layer 1 differs"),
        ("model.layers.1.self_attn.k_proj", "K of layer 1 differs"),
        ("model.layers.1.self_attn.v_proj", "V of layer 1 differs"),
        ("model.layers.2", "what layer 2 gives differs"),
        ("lm_head", "its logits differ"),
    ],
)
def test_one_row_that_is_off(part: str, told: str, dtype: torch.dtype) -> None:
    model = make(dtype)
    decoder = build_decoder(model)
    if part == "lm_head":  # which both run
        decoder = replace(decoder, head=copy(decoder.head))
    elif part == "model.embed_tokens":
        decoder = replace(decoder, embed=copy(decoder.embed))
    model.get_submodule(part).register_forward_hook(one_row(1.1))
    with pytest.raises(ModelError, match=rf"{told} from ours by \d+\.\d% at position 509"):
        check_against(model, decoder)


def test_scores_that_are_scaled_otherwise() -> None:
    model = make(torch.bfloat16)
    decoder = build_decoder(model)
    for layer in model.model.layers:
        layer.self_attn.scaling *= 0.9
    with pytest.raises(ModelError, match=r"what layer 0 reads differs from ours by"):
        check_against(model, decoder)


def test_the_model_keeps_its_own_attention_and_no_hook() -> None:
    model = make_model(make_config(attn_implementation="eager"))
    build_decoder(model)
    assert model.config._attn_implementation == "eager"
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_no_number_is_a_reason() -> None:
    model = make(torch.float32)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = torch.nan
    with pytest.raises(ModelError, match="what layer 1 gives differs from ours by nan%"):
        build_decoder(model)
