"""Folders of models with random weights, which vLLM loads as it loads any other."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.gpu.shapes import ModelShape, random_weights

SHARD_BYTES = 4_000_000_000


def write_folder(folder: Path, shape: ModelShape, device: torch.device, dtype: torch.dtype, seed: int) -> None:
    """Without a tokenizer: prompts are ids."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(shape, dtype), indent=1))
    shards, room = [dict[str, torch.Tensor]()], SHARD_BYTES
    for name, weight in random_weights(shape, device, dtype, seed).items():
        if weight.nbytes > room and shards[-1]:
            shards.append({})
            room = SHARD_BYTES
        shards[-1][name] = weight.cpu().clone()  # norms are one tensor under many names
        room -= weight.nbytes
    files = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    for file, shard in zip(files, shards, strict=True):
        save_file(shard, folder / file, {"format": "pt"})
    index = {name: file for file, shard in zip(files, shards, strict=True) for name in shard}
    total = sum(weight.nbytes for shard in shards for weight in shard.values())
    told = {"metadata": {"total_size": total}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(told))


def _config(shape: ModelShape, dtype: torch.dtype) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": shape.theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": shape.tied,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
