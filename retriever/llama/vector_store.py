"""A vector store of llama-index that holds its nodes in memory and searches them by meaning, by words or by both."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import fsspec  # type: ignore[import-untyped]  # it comes without type hints
import numpy as np
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from retriever import IntArray, RetrieverError, Vectors
from retriever.generations import TEMPORARY
from retriever.keyword_index import KeywordIndex
from retriever.llama.filters import allows, hollow
from retriever.memory_source import MemorySource
from retriever.searcher import HYBRID, KEYWORD, VECTOR, Searcher, SearchOptions
from retriever.vector_index import VectorIndex

MODES = {
    VectorStoreQueryMode.DEFAULT: VECTOR,
    VectorStoreQueryMode.MMR: VECTOR,
    VectorStoreQueryMode.SPARSE: KEYWORD,
    VectorStoreQueryMode.TEXT_SEARCH: KEYWORD,
    VectorStoreQueryMode.HYBRID: HYBRID,
    VectorStoreQueryMode.SEMANTIC_HYBRID: HYBRID,
}
MMR_SHARE = 0.5  # of relevance, where a query does not say


class FaissBm25VectorStore(BasePydanticVectorStore):
    """Vectors are brought to length 1, so similarities are cosines whatever the embedding model gives.

    A node whose id is there already replaces it. `delete` takes all nodes of a document. Deleting never takes more than
    was named: an empty id, list or filter names nothing. Only `clear` empties the store.
    """

    stores_text: bool = True
    is_embedding_query: bool = True

    _dimension: int = PrivateAttr()
    _source: MemorySource = PrivateAttr()
    _searcher: Searcher = PrivateAttr()
    _nodes: dict[int, BaseNode] = PrivateAttr()
    _ids: dict[str, int] = PrivateAttr()  # of nodes by the ids that llama-index gives them
    _lock: threading.RLock = PrivateAttr()

    def __init__(self, dimension: int, structure: str = "auto") -> None:
        """`structure` is how vectors are searched: flat, hnsw, ivf, or auto, by their number."""
        super().__init__(stores_text=True)
        self._dimension = dimension
        self._lock = threading.RLock()
        self._reset(structure)

    @classmethod
    def class_name(cls) -> str:
        return "FaissBm25VectorStore"

    @property
    def client(self) -> Searcher:
        return self._searcher

    def searcher(self, embed: Callable[[str], Vectors | list[float]]) -> Searcher:
        """The same indexes for a HybridRetriever, with what makes vectors of questions."""
        return Searcher(
            self._source,
            self._searcher.vectors,
            self._searcher.keywords,
            lambda question: _normal(np.asarray(embed(question), dtype=np.float32)),
        )

    def nodes_by_id(self, ids: IntArray) -> list[BaseNode | None]:
        with self._lock:
            return [self._nodes.get(int(number)) for number in ids]

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        if not nodes:
            return []
        latest = {node.node_id: node for node in nodes}  # the last of those with one id
        vectors = np.array([node.get_embedding() for node in latest.values()], dtype=np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != self._dimension:
            raise RetrieverError(
                f"nodes with embeddings of {vectors.shape[1:]} in a store of {self._dimension} dimensions"
            )
        texts = [node.get_content(MetadataMode.NONE) for node in latest.values()]
        with self._lock:
            self._forget([name for name in latest if name in self._ids])
            for number, node in zip(self._source.add(texts, _normal(vectors)).tolist(), latest.values(), strict=True):
                self._nodes[number], self._ids[node.node_id] = node, number
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        if not ref_doc_id:
            return  # nodes without a document belong to nobody, not to a document without a name
        with self._lock:
            self._forget([node.node_id for node in self._nodes.values() if node.ref_doc_id == ref_doc_id])

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """The nodes of these ids that pass the filters; where neither is given, or is empty, none."""
        if not node_ids and (node_ids is not None or filters is None or hollow(filters)):
            return
        with self._lock:
            self._forget([node.node_id for node in self.get_nodes(node_ids, filters)])

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """All of them without arguments; an empty list of ids gives none."""
        if node_ids is not None and not node_ids:
            return []
        if isinstance(node_ids, str):
            raise RetrieverError(f"node_ids is the text {node_ids!r}: give a list of ids")
        with self._lock:
            numbers = self._matching(VectorStoreQuery(node_ids=node_ids, filters=filters))
            return list(self._nodes.values()) if numbers is None else [self._nodes[number] for number in numbers]

    def clear(self) -> None:
        with self._lock:
            self._forget(list(self._ids))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Modes: default and mmr (vectors), text_search and sparse (words), hybrid and semantic_hybrid (both)."""
        if query.mode not in MODES:
            known = ", ".join(mode.value for mode in MODES)
            raise RetrieverError(f"unknown query mode {query.mode.value!r}: choose from {known}")
        with self._lock:
            numbers = self._matching(query)
            hits = self._searcher.search(
                query.query_str or "",
                _wanted(query),
                allowed=None if numbers is None else np.array(numbers, dtype=np.int64),
                options=_options(query, kwargs.get("mmr_threshold")),
                vector=_vector(query),
            )
            nodes = [self._nodes[hit.id] for hit in hits]
        return VectorStoreQueryResult(nodes, [hit.score for hit in hits], [node.node_id for node in nodes])

    def persist(self, persist_path: str, fs: Any = None) -> None:
        """The nodes with their vectors, a JSON object per line. Indexes are made again from them.

        On a local disk the older file stays until the new one is whole. Raises OSError.
        """
        with self._lock:
            # Any text can be written so, halves of surrogate pairs too, which loaders leave.
            lines = [
                json.dumps({"embedding": node.embedding, "node": node_to_metadata_dict(node)}, ensure_ascii=True)
                for node in self._nodes.values()
            ]
        text = "\n".join([json.dumps({"dimension": self._dimension, "nodes": len(lines)}), *lines]) + "\n"
        system = fs or fsspec.filesystem("file")
        if isinstance(system, LocalFileSystem):
            write_beside(Path(system._strip_protocol(persist_path)), text)
            return
        with system.open(persist_path, "w", encoding="utf-8") as file:
            file.write(text)

    @classmethod
    def from_persist_path(cls, persist_path: str, fs: Any = None, structure: str = "auto") -> Self:
        """Raises RetrieverError for a file that is not whole, OSError for one that cannot be read."""
        with (fs or fsspec.filesystem("file")).open(persist_path, "rb") as file:
            dimension, rest = read_lines(file, persist_path)
        store = cls(dimension, structure)
        nodes = [metadata_dict_to_node(one["node"]) for one in rest]
        for node, one in zip(nodes, rest, strict=True):
            node.embedding = one["embedding"]
        store.add(nodes)
        return store

    def _reset(self, structure: str) -> None:
        self._source = MemorySource(self._dimension)
        self._nodes, self._ids = {}, {}
        vectors = VectorIndex(self._dimension, "llama-index", structure=structure)
        self._searcher = Searcher(self._source, vectors, KeywordIndex(), _no_embedding)

    def _forget(self, names: Sequence[str]) -> None:
        numbers = [self._ids.pop(name) for name in names]
        for number in numbers:
            del self._nodes[number]
        self._source.retire(numbers)

    def _matching(self, query: VectorStoreQuery) -> list[int] | None:
        """Ids of the nodes that a query allows, ascending; None when it allows all.

        Empty lists allow all, since llama-index gives them where nobody has asked for a restriction.
        """
        if not query.node_ids and not query.doc_ids and query.filters is None:
            return None
        documents, names = set(query.doc_ids or ()), set(query.node_ids or ())
        return [
            number
            for number, node in self._nodes.items()
            if (not names or node.node_id in names)
            and (not documents or node.ref_doc_id in documents)
            and (query.filters is None or allows(query.filters, node.metadata))
        ]


def _wanted(query: VectorStoreQuery) -> int:
    hybrid = MODES[query.mode] == HYBRID
    if MODES[query.mode] == KEYWORD and query.sparse_top_k is not None:
        return query.sparse_top_k
    return query.hybrid_top_k if hybrid and query.hybrid_top_k is not None else query.similarity_top_k


def _options(query: VectorStoreQuery, threshold: float | None) -> SearchOptions:
    share = None
    if query.mode == VectorStoreQueryMode.MMR:
        given = query.mmr_threshold if query.mmr_threshold is not None else threshold
        share = MMR_SHARE if given is None else given
    weight = 0.5 if query.alpha is None else query.alpha
    return SearchOptions(MODES[query.mode], vector_share=weight, mmr=share)


def _vector(query: VectorStoreQuery) -> Vectors | None:
    return None if query.query_embedding is None else _normal(np.asarray(query.query_embedding, dtype=np.float32))


def _normal(vectors: Vectors) -> Vectors:
    """Of length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    normal: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return normal


def _no_embedding(question: str) -> Vectors:
    raise RetrieverError("a query by vectors needs an embedding: give the index an embed_model")


def write_beside(path: Path, text: str) -> None:
    """A link is followed, so what it points to is replaced. Raises OSError, and leaves the older file as it was."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_lines(lines: Iterable[bytes], where: str) -> tuple[int, list[dict[str, Any]]]:
    """The dimension and the nodes as they were written. Raises RetrieverError when some of it is missing."""
    try:
        parsed = [json.loads(line) for line in lines if line.strip()]
        head, nodes = parsed[0], parsed[1:]
        dimension, wanted = int(head["dimension"]), int(head.get("nodes", len(nodes)))
        whole = len(nodes) == wanted and all({"embedding", "node"} <= one.keys() for one in nodes)
    except (ValueError, LookupError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise RetrieverError(
            f"{where} is torn or no file of a vector store: take an older copy of it, or index the documents again"
        )
    return dimension, nodes
