"""The splitters as node parsers of llama-index.

from splitter.nodes import AutoNodeParser
from splitter.base import FastTokens

parser = AutoNodeParser(tokens=FastTokens(tokenizer), embed_model=embed_model, max_tokens=200)
nodes = parser.get_nodes_from_documents(documents)
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.node_utils import IdFuncCallable, build_nodes_from_splits
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode
from llama_index.core.utils import get_tqdm_iterable
from pydantic import Field, PrivateAttr

from splitter import make_splitter
from splitter.base import HEADING_SEPARATOR, ChunkLimits, Embed, Piece, Splitter, Tokens, Vectors

# Keys of metadata: what is read from a document, and what is written to a node.
KIND, HEADING = "kind", "heading"


def unnamed(i: int, doc: BaseNode) -> str:
    """Stands for: name a node by its document, its place and its text, so that it is the same next time."""
    return f"{doc.node_id}:{i}"


class SpanNodeParser(NodeParser):
    """`text[node.start_char_idx : node.end_char_idx]` is the node's text, also where the text repeats itself.

    A document's metadata may say its `kind` (one of splitter.documents.KINDS); a node's say the `heading` that it is
    under, and llama-index embeds it with them.
    """

    splitter: ClassVar[str]

    tokens: Any = Field(exclude=True, description="Counts tokens of the model: splitter.base.Tokens.")
    embed_model: BaseEmbedding | None = Field(default=None, description="Tells where meaning turns.")
    min_tokens: int = Field(default=ChunkLimits.min_tokens, description="Fewest tokens of a node.")
    max_tokens: int = Field(default=ChunkLimits.max_tokens, description="Most tokens of a node.")
    overlap: int = Field(
        default=ChunkLimits.overlap, description="Tokens that a node may share with the one before it."
    )
    kind: str = Field(default="prose", description="The kind of documents whose metadata do not say theirs.")
    id_func: IdFuncCallable = Field(default=unnamed, exclude=True, description="Names the nodes.")
    _made: Splitter = PrivateAttr()

    @classmethod
    def class_name(cls) -> str:
        return f"Ragcache{cls.__name__}"

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        tokens: Tokens = self.tokens
        embed = embed_with(self.embed_model) if self.embed_model else None
        self._made = make_splitter(
            self.splitter, tokens, embed, ChunkLimits(self.min_tokens, self.max_tokens, self.overlap)
        )

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        parsed: list[BaseNode] = []
        for node in get_tqdm_iterable(nodes, show_progress, "Parsing nodes"):
            parsed += self._split(node)
        return parsed

    def _split(self, document: BaseNode) -> list[TextNode]:
        text = document.get_content(metadata_mode=MetadataMode.NONE)
        pieces = self._made.split(text, document.metadata.get(KIND, self.kind))
        texts = [text[piece.start : piece.end] for piece in pieces]
        nodes = build_nodes_from_splits(texts, document, id_func=self.id_func)
        for node, piece in zip(nodes, pieces, strict=True):
            if self.id_func is unnamed:
                node.id_ = _named(document, piece, node.text)
            node.start_char_idx, node.end_char_idx = piece.start, piece.end
            if piece.heading:
                node.metadata[HEADING] = HEADING_SEPARATOR.join(piece.heading)
        return nodes

    def _postprocess_parsed_nodes(self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]) -> list[BaseNode]:
        # The base class searches each text in its document, and finds the first of two that are equal.
        spans = [(node.start_char_idx, node.end_char_idx) if isinstance(node, TextNode) else None for node in nodes]
        nodes = super()._postprocess_parsed_nodes(nodes, parent_doc_map)
        for node, span in zip(nodes, spans, strict=True):
            if isinstance(node, TextNode) and span:
                node.start_char_idx, node.end_char_idx = span
        return nodes


class AutoNodeParser(SpanNodeParser):
    splitter = "auto"


class FixedNodeParser(SpanNodeParser):
    splitter = "fixed"


class SemanticNodeParser(SpanNodeParser):
    splitter = "semantic"


class StructureNodeParser(SpanNodeParser):
    splitter = "structure"


def embed_with(model: BaseEmbedding) -> Embed:
    """An embedding of llama-index as the splitters take it: one array, vectors of length 1."""

    def embed(texts: Sequence[str]) -> Vectors:
        vectors = np.asarray(model.get_text_embedding_batch(list(texts)), dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: Vectors = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
        return unit

    return embed


def _named(document: BaseNode, piece: Piece, text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{document.node_id}:{piece.start}:{piece.end}:{digest}"))
