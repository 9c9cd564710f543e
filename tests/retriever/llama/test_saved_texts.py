"""What a store writes of its nodes is read again, whatever their texts hold."""

from __future__ import annotations

import json
from pathlib import Path

from llama_index.core.schema import MetadataMode, TextNode

from retriever.llama.vector_store import FaissBm25VectorStore


def test_any_text_outlives_the_program(tmp_path: Path) -> None:
    store, path = FaissBm25VectorStore(2), str(tmp_path / "nodes.jsonl")
    said = {"half": "half \ud83d of a pair", "line\u2028end": "über 日本 \U0001f600 \0"}
    for name, text in said.items():
        store.add([TextNode(id_=name, text=text, metadata={"path": f"/{text}"}, embedding=[1.0, 0.0])])
    store.persist(path)
    nodes = FaissBm25VectorStore.from_persist_path(path).get_nodes()
    assert {node.node_id: node.get_content(MetadataMode.NONE) for node in nodes} == said
    assert {node.metadata["path"] for node in nodes} == {f"/{text}" for text in said.values()}


def test_texts_that_were_written_as_they_are_are_read(tmp_path: Path) -> None:
    """As versions before wrote them."""
    store = FaissBm25VectorStore(2)
    store.add([TextNode(id_="z", text="日本", embedding=[1.0, 1.0])])
    path = tmp_path / "nodes.jsonl"
    store.persist(str(path))
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(json.dumps(json.loads(line), ensure_ascii=False) for line in lines), encoding="utf-8")
    (node,) = FaissBm25VectorStore.from_persist_path(str(path)).get_nodes(["z"])
    assert node.get_content(MetadataMode.NONE) == "日本"
