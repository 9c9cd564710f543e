"""A model folder as a user has it, but small and random: with the real tokenizer, for what reads folders and texts."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from app.models.chat_template import load_tokenizer


def write_tiny_folder(folder: Path, tokenizer_from: Path, *, spread: float = 0.3, **changes: int) -> Path:
    tokenizer = load_tokenizer(tokenizer_from)
    sizes = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 2048,
    }  # fmt: skip
    special = {name: getattr(tokenizer, name) for name in ("eos_token_id", "bos_token_id", "pad_token_id")}
    config = LlamaConfig(**{**sizes, **special, **changes}, tie_word_embeddings=True)
    model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Large enough that contexts matter, so that linked and full answers differ.
            weight.normal_(1.0 if "norm" in name else 0.0, spread, generator=generator)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
