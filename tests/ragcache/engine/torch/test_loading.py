"""What the engine takes, and what it refuses with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import transformers
from torch import nn
from transformers import PreTrainedConfig

from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.loading import load_pretrained
from ragcache.errors import ModelError
from tests.tiny import ROPES, SIZES, Tiny, assert_close, draw, make_config, make_model, make_tiny, stock, to_dtype

CPU = torch.device("cpu")
Make = Callable[[], PreTrainedConfig]


def llama_with_rope(**rope: Any) -> Make:
    return lambda: make_config(rope_parameters={"rope_theta": 10_000.0, **rope})


def other(kind: str, **settings: Any) -> Make:
    sizes = {**SIZES, "rope_parameters": dict(ROPES["default"]), **settings}
    return lambda: getattr(transformers, f"{kind}Config")(**sizes)


REFUSED: dict[str, tuple[Make, str]] = {
    "window": (lambda: make_config("mistral", sliding_window=32), r"mistral attends through a sliding window \(32"),
    "window in some layers": (
        lambda: make_config("qwen2", use_sliding_window=True, sliding_window=32, max_window_layers=1),
        r"qwen2 attends through a sliding window \(32",
    ),
    "a window whatever kinds of layers are told": (
        lambda: make_config("mistral", sliding_window=400, layer_types=["full_attention"] * 3),
        r"mistral .*: what layer 0 reads differs .*, which may be by its sliding window \(400 tokens\)",
    ),
    "a window that is told not to be used": (
        lambda: make_config("mistral", sliding_window=400, use_sliding_window=False),
        r"mistral .*: what layer 0 reads differs .*, which may be by its sliding window \(400 tokens\)",
    ),
    "dynamic": (llama_with_rope(rope_type="dynamic", factor=2.0), "RoPE type 'dynamic' is not supported.*yarn"),
    "linear": (llama_with_rope(rope_type="linear", factor=2.0), "RoPE type 'linear'"),
    "longrope": (
        llama_with_rope(
            rope_type="longrope", factor=2.0, short_factor=[1.0] * 8, long_factor=[2.0] * 8,
            original_max_position_embeddings=256,
        ),
        "RoPE type 'longrope'",
    ),
    "partial": (other("StableLm"), "rotates only 4 of 16 dimensions"),
    "partial yarn": (
        lambda: make_config(rope_parameters=dict(ROPES["yarn"], partial_rotary_factor=0.5)),
        "rotates only 8 of 16 dimensions",
    ),
    "multipliers": (
        other("Granite", embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=2.0),
        r"granite computes by embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5, which the",
    ),
    "queries scaled by their position": (
        other("Ministral3", layer_types=None, rope_parameters=dict(ROPES["yarn"], llama_4_scaling_beta=0.1)),
        "ministral3 computes by llama_4_scaling_beta=0.1, which the torch engine does not",
    ),
    "values that are clamped": (other("Olmo", clip_qkv=50.0), "olmo computes by clip_qkv=50.0, which the torch engine"),
    "an unknown number of RoPE": (llama_with_rope(rope_type="default", widened=2), "llama computes by widened=2"),
    "soft caps": (
        other("Gemma2", layer_types=["full_attention"] * 3, hidden_activation="gelu_pytorch_tanh"),
        "gemma2 computes by attn_logit_softcapping=50.0, final_logit_softcapping=30.0, which",
    ),
    "norms behind": (
        other("Gemma2", layer_types=["full_attention"] * 3, attn_logit_softcapping=None, final_logit_softcapping=None),
        "layer 0 of Gemma2DecoderLayer has unknown parts .*pre_feedforward_layernorm",
    ),
    "what follows seen": (other("Gemma", use_bidirectional_attention=True), "computes by use_bidirectional_att"),
    "latent attention": (
        other(
            "DeepseekV3", q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
            n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=16,
            first_k_dense_replace=1, num_key_value_heads=4,
        ),
        "has unknown parts .*kv_a_proj_with_mqa",
    ),
    "experts": (
        other("Qwen3Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, mlp_only_layers=[0, 2]),
        "layer 1 of Qwen3MoeSparseMoeBlock has unknown parts .*experts",
    ),
    "neighbouring dimensions": (other("Ernie4_5"), r"K of layer 0 differs from ours by .*% at position"),
    "a layer without RoPE": (other("SmolLM3", no_rope_layers=[1, 1, 0]), r"computes by no_rope_layers=\[1, 1, 0\]"),
    "scaled logits": (other("Cohere"), "cohere computes by logit_scale=0.0625"),
    "parallel blocks": (other("Cohere", logit_scale=1.0), "has no 'post_attention_layernorm'"),
    "an MLP without a gate": (other("Arcee"), "ArceeMLP has no 'gate_proj': not a decoder of the Llama family"),
    "norms with a bias before an MLP without a gate": (
        other("Nemotron", rope_parameters=dict(ROPES["default"], partial_rotary_factor=1.0)),
        "NemotronMLP has no 'gate_proj'",
    ),
    "Jais 2": (other("Jais2"), "Jais2MLP has no 'gate_proj'"),
    "no RoPE": (
        lambda: transformers.GPT2Config(vocab_size=199, n_embd=64, n_layer=2, n_head=4, n_positions=128),
        "GPT2LMHeadModel has no 'model': not a decoder of the Llama family",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_would_be_computed_wrongly_is_refused_with_the_reason(name: str) -> None:
    make, reason = REFUSED[name]
    model = make_model(make())
    with pytest.raises(ModelError, match=reason):
        TorchEngine.from_model(model)


class Adapted(nn.Linear):
    """As an adapter leaves a layer: more than its weight."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(rows)


@pytest.mark.parametrize("part", ["q_proj", "k_proj", "v_proj"])
def test_a_projection_that_is_more_than_its_weight_is_refused(part: str) -> None:
    model = make_model(make_config())
    model.model.layers[1].self_attn.get_submodule(part).__class__ = Adapted
    with pytest.raises(ModelError, match=f"'{part}' of LlamaAttention is no plain linear layer but Adapted"):
        TorchEngine.from_model(model)


@pytest.mark.parametrize("part", ["self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"])
def test_another_layer_that_is_more_than_its_weight_is_run_as_it_is(part: str) -> None:
    """Also where plain ones are packed."""
    model = to_dtype(make_model(make_config()), torch.bfloat16)
    for layer in model.model.layers:
        layer.get_submodule(part).__class__ = Adapted
    ids = draw(30, 0)
    expected = stock(model, ids).logits
    engine = TorchEngine.from_model(model)
    hidden = engine.compute(ids, range(30), engine.buffer(30), keep=30)
    assert_close(engine.logits(hidden), expected, 0.1)


def test_an_embedding_with_its_own_scale_is_run_as_it_is() -> None:
    model = make_model(other("Gemma", hidden_activation="gelu_pytorch_tanh")())
    engine, ids = TorchEngine.from_model(model), draw(30, 0)
    hidden = engine.compute(ids, range(30), engine.buffer(30), keep=30)
    assert_close(engine.logits(hidden), stock(model, ids).logits)


@pytest.mark.parametrize("told", [{"layer_types": ["full_attention"] * 3}, {"use_sliding_window": False}])
def test_a_window_that_no_layer_heeds_is_none(told: dict[str, Any]) -> None:
    model = make_model(make_config(sliding_window=8, **told))
    engine, ids = TorchEngine.from_model(model), draw(30, 0)
    assert model.config.sliding_window == 8
    hidden = engine.compute(ids, range(30), engine.buffer(30), keep=30)
    assert_close(engine.logits(hidden), stock(model, ids).logits)


def test_the_spec_tells_what_others_need(tiny: Tiny) -> None:
    spec = tiny.engine.spec
    assert (spec.layers, spec.kv_heads, spec.head_dim, spec.max_tokens, spec.vocabulary) == (3, 2, 16, 512, 199)
    buffer = tiny.engine.buffer(1)
    assert spec.token_bytes == buffer.k.nbytes + buffer.v.nbytes
    assert spec.eos == frozenset()


@pytest.mark.parametrize(
    ("config", "generation", "expected"), [(3, None, {3}), ([3, 4], None, {3, 4}), (3, [5, 6], {5, 6})]
)
def test_all_tokens_that_end_an_answer(config: Any, generation: Any, expected: set[int]) -> None:
    model = make_model(make_config(eos_token_id=config))
    if generation is not None:
        model.generation_config.eos_token_id = generation
    assert TorchEngine.from_model(model).spec.eos == expected


@pytest.mark.parametrize("told", ["x", 2.5, True, [1, "x"], {"a": 1}])
def test_what_ends_no_answer_is_told(told: Any) -> None:
    model = make_model(make_config())
    model.generation_config.eos_token_id = told
    with pytest.raises(ModelError, match=r"^eos_token_id=.* is no token id and no list of some: mend the model's"):
        TorchEngine.from_model(model)


@pytest.mark.parametrize("text", ["[]", '"x"', "5"])
def test_generation_settings_that_are_none(tmp_path: Path, text: str) -> None:
    make_model(make_config()).save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(ModelError, match=f"cannot load the model in {tmp_path}"):
        load_pretrained(tmp_path, torch.float32, CPU)


def test_no_weight_is_held_twice() -> None:
    tiny = make_tiny()
    for layer, ours in zip(tiny.model.model.layers, tiny.engine.decoder.layers, strict=True):
        stack = cast(nn.Linear, ours.qkv).weight.untyped_storage().data_ptr()
        for name in ("q_proj", "k_proj", "v_proj"):
            assert getattr(layer.self_attn, name).weight.untyped_storage().data_ptr() == stack


def test_a_folder_gives_the_same_engine_as_the_model(tmp_path: Path) -> None:
    tiny = make_tiny("qwen3", "yarn")
    tiny.model.save_pretrained(tmp_path)
    engine, ids = TorchEngine.from_folder(tmp_path, torch.float32, CPU), draw(20, 0)
    hidden = engine.compute(ids, range(20), engine.buffer(20), keep=20)
    assert_close(engine.logits(hidden), stock(tiny.model, ids).logits)


def test_a_fingerprint_is_that_of_the_weights_the_tokenizer_and_the_number_format(tmp_path: Path) -> None:
    def fingerprint(dtype: torch.dtype = torch.float32) -> str:
        return TorchEngine.from_folder(tmp_path, dtype, CPU).spec.fingerprint

    make_tiny().model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    first = fingerprint()
    assert fingerprint() == first
    assert fingerprint(torch.bfloat16) != first
    (tmp_path / "tokenizer.json").write_text("{ }")
    second = fingerprint()
    assert second != first
    make_model(make_config(), seed=1).save_pretrained(tmp_path)
    assert fingerprint() not in (first, second)


def test_two_models_of_one_shape_are_told_apart_and_a_copy_is_not() -> None:
    first, copy, other = (TorchEngine.from_model(make_model(make_config(), seed)).spec for seed in (0, 0, 1))
    assert first.fingerprint == copy.fingerprint != other.fingerprint
    rope = TorchEngine.from_model(make_model(make_config(rope="yarn"), 0)).spec
    assert rope.fingerprint != first.fingerprint


@pytest.mark.parametrize("content", [None, "{", '{"model_type": "no such"}'])
def test_a_folder_that_cannot_be_loaded(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=f"cannot load the model in {tmp_path}"):
        load_pretrained(tmp_path, torch.float32, CPU)


def test_weights_that_are_cut_short(tmp_path: Path) -> None:
    make_tiny().model.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match=f"cannot load the model in {tmp_path}"):
        load_pretrained(tmp_path, torch.float32, CPU)


def test_weights_that_are_not_all_there(tmp_path: Path) -> None:
    model = make_tiny().model
    weights = model.state_dict()
    del weights["model.layers.1.mlp.up_proj.weight"]
    model.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(ModelError, match=f"{tmp_path} lacks weights, model.layers.1.mlp.up_proj.weight"):
        load_pretrained(tmp_path, torch.float32, CPU)


def test_weights_of_another_shape(tmp_path: Path) -> None:
    make_tiny().model.save_pretrained(tmp_path)
    make_config(intermediate_size=80).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=f"cannot load the model in {tmp_path}"):
        load_pretrained(tmp_path, torch.float32, CPU)


def test_a_rope_that_differs_at_far_positions_alone_is_refused() -> None:
    """Such a difference shows in no short prompt."""
    model = make_model(make_config(rope_parameters={"rope_type": "default", "rope_theta": 1e6}))
    model.model.rotary_emb.inv_freq[-1] *= 5
    with pytest.raises(ModelError, match=r"K of layer 0 differs from ours by .* at position \d{3}"):
        TorchEngine.from_model(model)


def test_layers_that_scale_differently_are_refused() -> None:
    model = make_model(make_config())
    model.model.layers[2].self_attn.scaling = 0.2
    with pytest.raises(ModelError, match=r"scales attention by \[0.2, 0.25\] in different layers"):
        TorchEngine.from_model(model)
