"""An embedding model as a user has it, but small and random: its vectors mean nothing, and it is quick."""

from __future__ import annotations

from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertModel


def write_tiny_embedder(folder: Path, tokenizer_from: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_from), local_files_only=True)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        max_position_embeddings=256,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    words = Transformer(str(folder / "bert"), max_seq_length=256)
    SentenceTransformer(modules=[words, Pooling(16)], device="cpu").save(str(folder / "embedder"))
    return folder / "embedder"
