"""A model folder as a user has it, with the real tokenizer, of a size that vLLM's CPU attention takes."""

from __future__ import annotations

from pathlib import Path

from app.models.chat_template import load_tokenizer
from tests.tiny import make_tiny


def write_small_folder(folder: Path, tokenizer_from: Path) -> Path:
    tokenizer = load_tokenizer(tokenizer_from)
    make_tiny(
        vocab_size=len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        head_dim=32,
        hidden_size=128,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    ).model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
