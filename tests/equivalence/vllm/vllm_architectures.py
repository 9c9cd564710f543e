"""Small random models of what vLLM serves: each is linked exactly, or refused at the start with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from ragcache.errors import RagcacheError
from ragcache.store import open_store
from tests.tiny import ROPES, VOCABULARY, make_chunks, make_model, make_question, make_system

CONTEXT = 256
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,  # vLLM's CPU attention has no smaller heads
    "max_position_embeddings": CONTEXT,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
SYSTEM, QUESTION = make_system(20), make_question(7)
DOCUMENT = make_chunks(25, 31, 18)
ANSWER = 8  # tokens


@dataclass(frozen=True)
class Architecture:
    kind: str  # of transformers' configurations
    settings: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> transformers.PreTrainedModel:
        """Attention adds nothing in all layers but the last: K is that of the tokens alone, so that a chunk which was
        moved must give the very answer of a prefill.
        """
        sizes = {**SIZES, "rope_parameters": dict(ROPES["default"]), **self.settings}
        if sizes["head_dim"] is None:
            del sizes["head_dim"]
        model = make_model(getattr(transformers, f"{self.kind}Config")(**sizes))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                first_output = any(part in name for part in (".o_proj.", ".dense.", ".out_proj.")) and ".0." in name
                if first_output:
                    weight.zero_()
        model.save_pretrained(folder)
        return model


FULL = {"layer_types": ["full_attention"] * 2}
EXACT = {
    "llama": Architecture("Llama"),
    "llama3": Architecture("Llama", {"rope_parameters": dict(ROPES["llama3"])}),
    "yarn": Architecture("Llama", {"rope_parameters": dict(ROPES["yarn"], factor=4.0)}),
    "qwen2": Architecture("Qwen2"),
    "qwen3": Architecture("Qwen3"),
    "mistral": Architecture("Mistral", {"sliding_window": None}),
    "granite": Architecture(
        "Granite",
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "logits_scaling": 2.0,
            "attention_multiplier": 0.1,
        },
    ),
    "exaone4": Architecture("Exaone4", {**FULL, "sliding_window": None}),
    "phi3": Architecture("Phi3"),
    "gemma": Architecture("Gemma", {"hidden_activation": "gelu_pytorch_tanh"}),
}
OTHER_ROPE = r"layer 0 turns K at position \d+ otherwise than standard RoPE does"
OTHER_CODE = "0 of its 2 layers are called as modules"
REFUSED = {
    "cohere": (Architecture("Cohere"), OTHER_ROPE),  # neighbouring dimensions
    "ernie": (Architecture("Ernie4_5"), OTHER_ROPE),
    "glm": (Architecture("Glm"), "rotates only"),
    "stablelm": (Architecture("StableLm"), "rotates only"),
    "gpt-neox": (Architecture("GPTNeoX"), "rotates only"),
    "olmo2": (Architecture("Olmo2"), OTHER_CODE),
    "starcoder2": (Architecture("Starcoder2", {"sliding_window": None}), OTHER_CODE),
    "smollm3": (Architecture("SmolLM3", {"no_rope_layers": [1, 0]}), OTHER_CODE),
    "gemma2": (Architecture("Gemma2", FULL), "caps its scores"),
    "gemma3": (Architecture("Gemma3Text", {"layer_types": ["full_attention", "sliding_attention"]}), "sliding window"),
    "falcon": (
        Architecture("Falcon", {"head_dim": None, "alibi": True, "new_decoder_architecture": False}),
        "adds ALiBi to its scores",
    ),
    "opt": (Architecture("OPT", {"ffn_dim": 96}), "layer 0 turns K by RoPE 0 times"),
}


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[Any]:
    from ragcache.cache import ChunkCache
    from ragcache.engine.vllm.engine import VllmEngine

    store = open_store(codec="raw")
    settings = {"max_model_len": CONTEXT, "enforce_eager": True, "kv_cache_memory_bytes": 16_000_000, **options}
    engine = VllmEngine(folder, torch.float32, store, linking={"link_when": "always"}, **settings)
    try:
        yield ChunkCache(engine, store, "naive", context_chunks=2, keep_missed=False)
    finally:
        engine.close()


def greedy(model: transformers.PreTrainedModel, ids: list[int]) -> list[int]:
    with torch.inference_mode():
        out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=ANSWER, min_new_tokens=ANSWER)
    return [int(token) for token in out[0, len(ids) :]]


@pytest.mark.parametrize("name", EXACT)
def test_a_model_is_linked_exactly(name: str, tmp_path: Path) -> None:
    model = EXACT[name].save(tmp_path)
    with opened(tmp_path) as cache:
        list(cache.ingest(SYSTEM, DOCUMENT))
        for chunks in (DOCUMENT, [DOCUMENT[2], DOCUMENT[0]]):
            segments = [SYSTEM, *chunks, QUESTION]
            expected = greedy(model, [token for segment in segments for token in segment.ids])
            for linker in ("naive", "auto:ratio=0.3", "full"):
                answer = cache.generate(segments, max_tokens=ANSWER, linker=linker)
                assert list(answer) == expected, (linker, len(chunks))
                assert answer.report.reused > 0 or linker == "full"


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_would_be_linked_wrongly_is_refused(name: str, tmp_path: Path) -> None:
    architecture, reason = REFUSED[name]
    architecture.save(tmp_path)
    with pytest.raises(RagcacheError, match=reason), opened(tmp_path):
        pass
