"""The forward of BERT with nothing around it.

A question is a dozen tokens, and half of its time in the library goes into Python: keyword arguments, masks, outputs
by name. Here it is four products of matrices in a layer, with weights as retriever/packing.py has them, query,
key and value as one, and GELU and the residual inside the products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from retriever.bert_folder import FIRST, GELU, BertFolder
from retriever.encoder import IDS, Encoder, Row
from retriever.packing import packed

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class Product:
    """A linear layer."""

    weight: torch.Tensor
    bias: torch.Tensor

    @classmethod
    def of(cls, *layers: nn.Linear) -> Self:
        """Of several that read the same, one after the other."""
        weight = torch.cat([layer.weight.detach() for layer in layers])
        return cls(packed(weight), torch.cat([layer.bias.detach() for layer in layers]))

    def __call__(self, rows: torch.Tensor, then: str = "none", kind: str = "") -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, self.weight, self.bias, then, [], kind)
        return out

    def plus(self, rows: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(rows, residual, self.weight, self.bias, "add")
        return out


@dataclass(frozen=True)
class Norm:
    weight: torch.Tensor
    bias: torch.Tensor
    eps: float

    @classmethod
    def of(cls, norm: nn.LayerNorm) -> Self:
        return cls(norm.weight.detach(), norm.bias.detach(), norm.eps)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.layer_norm(rows, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class EncoderLayer:
    heads: int
    gelu: str
    qkv: Product
    out: Product
    after: Norm
    up: Product
    down: Product
    last: Norm

    @classmethod
    def of(cls, layer: Any, gelu: str) -> Self:
        attention, own = layer.attention, layer.attention.self
        return cls(
            own.num_attention_heads,
            gelu,
            Product.of(own.query, own.key, own.value),
            Product.of(attention.output.dense),
            Norm.of(attention.output.LayerNorm),
            Product.of(layer.intermediate.dense),
            Product.of(layer.output.dense),
            Norm.of(layer.output.LayerNorm),
        )

    def __call__(self, rows: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        # [texts, tokens, width] → the same
        texts, tokens, width = rows.shape
        heads = self.qkv(rows).view(texts, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind()  # each [texts, heads, tokens, width of a head]
        seen = scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).reshape(texts, tokens, width)
        rows = self.after(self.out.plus(seen, rows))
        return self.last(self.down.plus(self.up(rows, "gelu", self.gelu), rows))


class BertEncoder(Encoder):
    """BERT with absolute positions, whose mean or first vector is the text's, on a CPU."""

    def __init__(self, model: SentenceTransformer | BertFolder) -> None:
        super().__init__(model)
        bert: Any = model[0].model
        embeddings = bert.embeddings
        self._words = embeddings.word_embeddings.weight.detach()
        kinds = embeddings.token_type_embeddings.weight.detach()
        places = embeddings.position_embeddings.weight.detach().float() + kinds[0].float()
        self._places = places.to(self._words.dtype)
        self._norm = Norm.of(embeddings.LayerNorm)
        self._layers = [EncoderLayer.of(layer, GELU[bert.config.hidden_act]) for layer in bert.encoder.layer]
        pooling: Any = model[1]
        self._pooling: str = pooling.pooling_mode
        self._pad: int = model.tokenizer.pad_token_id
        self._tokenizer = model.tokenizer.backend_tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(model.max_seq_length)

    def tokenized(self, texts: list[str]) -> list[Row]:
        return [{IDS: found.ids} for found in self._tokenizer.encode_batch_fast(texts)]

    def length(self, text: str) -> int:
        found = self._tokenizer.encode_batch_fast([text])[0]
        return len(found.ids) + sum(len(cut.ids) for cut in found.overflowing)

    def forward(self, rows: Sequence[Row], prompt: str = "") -> torch.Tensor:
        lengths = [len(row[IDS]) for row in rows]
        longest = max(lengths)
        ids = torch.tensor([row[IDS] + [self._pad] * (longest - len(row[IDS])) for row in rows])
        if min(lengths) == longest:
            return self._pooled(self._hidden(ids, None), None)
        real = torch.arange(longest) < torch.tensor(lengths)[:, None]  # [texts, tokens]
        return self._pooled(self._hidden(ids, real[:, None, None, :]), real)

    def _hidden(self, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        rows = self._norm(torch.embedding(self._words, ids) + self._places[: ids.shape[1]])
        for layer in self._layers:
            rows = layer(rows, mask)
        return rows

    def _pooled(self, rows: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
        if self._pooling == FIRST:
            return rows[:, 0].float()
        if real is None:
            return rows.mean(1, dtype=torch.float32)
        return (rows * real[..., None]).sum(1, dtype=torch.float32) / real.sum(1, keepdim=True)
