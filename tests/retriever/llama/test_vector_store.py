"""The vector store in plain llama-index programs, with the bundled embedding model and no language model."""

from __future__ import annotations

import asyncio
import resource
import signal
from pathlib import Path

import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import NodeRelationship, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from app.models.folders import resolve_embedder
from retriever import RetrieverError
from retriever.embedder import Embedder
from retriever.llama.adapters import HybridRetriever, LocalEmbedding
from retriever.llama.vector_store import FaissBm25VectorStore
from retriever.searcher import SearchOptions

NODES = [
    ("a", "rye bread", [1.0, 0.0], {"year": 1990, "tags": ["food", "old"]}, "doc1"),
    ("b", "rye whisky", [4.0, 1.0], {"year": 2000, "tags": ["drink"]}, "doc1"),
    ("c", "storms at sea", [0.0, 2.0], {"year": 2010, "author": "Ann"}, "doc2"),
    ("d", "calm seas, and a sailor's rye", [0.1, 1.0], {"year": 2020, "author": "Bob"}, "doc2"),
]


@pytest.fixture
def store() -> FaissBm25VectorStore:
    store = FaissBm25VectorStore(2)
    nodes = [
        TextNode(
            id_=name,
            text=text,
            embedding=vector,
            metadata=metadata,
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)},
        )
        for name, text, vector, metadata, document in NODES
    ]
    assert store.add(nodes) == ["a", "b", "c", "d"]
    return store


def asked(store: FaissBm25VectorStore, **query: object) -> list[str]:
    settings = {"query_embedding": [2.0, 0.0], "query_str": "rye", "similarity_top_k": 10} | query
    return store.query(VectorStoreQuery(**settings)).ids or []  # type: ignore[arg-type]  # its fields, by name


def where(key: str, value: object, operator: str = "==") -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=FilterOperator(operator))])


def test_similarities_are_cosines(store: FaissBm25VectorStore) -> None:
    result = store.query(VectorStoreQuery(query_embedding=[2.0, 0.0], similarity_top_k=2))
    assert result.ids == ["a", "b"]
    assert result.similarities == pytest.approx([1.0, 4 / 17**0.5])
    assert result.nodes is not None
    assert [node.get_content() for node in result.nodes] == ["rye bread", "rye whisky"]
    assert result.nodes[0].metadata["year"] == 1990


def test_modes(store: FaissBm25VectorStore) -> None:
    assert asked(store, similarity_top_k=2, query_embedding=[0.0, 1.0]) == ["c", "d"]
    assert asked(store, mode=VectorStoreQueryMode.TEXT_SEARCH, query_embedding=None) == ["a", "b", "d"]
    assert asked(store, mode=VectorStoreQueryMode.SPARSE, sparse_top_k=1) == ["a"]
    assert asked(store, mode=VectorStoreQueryMode.HYBRID, hybrid_top_k=3) == ["a", "b", "d"]
    only_words = asked(store, mode=VectorStoreQueryMode.HYBRID, query_str="storms", alpha=0.0, similarity_top_k=1)
    assert only_words == ["c"]
    assert asked(store, mode=VectorStoreQueryMode.MMR, mmr_threshold=0.1, similarity_top_k=2) == ["a", "c"]
    with pytest.raises(RetrieverError, match="unknown query mode 'svm': choose from default"):
        asked(store, mode=VectorStoreQueryMode.SVM)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (where("author", "Ann"), "c"),
        (where("year", 2000, ">="), "bcd"),
        (where("year", [1990, 2020], "in"), "ad"),
        (where("tags", "food", "contains"), "a"),
        (where("author", None, "is_empty"), "ab"),
        (
            MetadataFilters(filters=[where("author", "Ann"), where("year", 1995, "<")], condition=FilterCondition.OR),
            "ac",
        ),
        (where("author", "nobody"), ""),
    ],
)
@pytest.mark.parametrize("mode", [VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.HYBRID])
def test_filters(
    store: FaissBm25VectorStore, mode: VectorStoreQueryMode, filters: MetadataFilters, expected: str
) -> None:
    assert set(asked(store, mode=mode, filters=filters)) == set(expected)
    assert {node.node_id for node in store.get_nodes(filters=filters)} == set(expected)


def test_restricted_to_nodes_and_documents(store: FaissBm25VectorStore) -> None:
    assert set(asked(store, node_ids=["a", "c", "zzz"])) == {"a", "c"}
    assert set(asked(store, doc_ids=["doc2"])) == {"c", "d"}
    assert asked(store, node_ids=["zzz"]) == []
    assert len(asked(store, node_ids=[], doc_ids=[])) == 4, "llama-index gives these when it means all"


def test_a_document_is_deleted_with_its_nodes(store: FaissBm25VectorStore) -> None:
    store.delete("doc1")
    assert set(asked(store)) == {"c", "d"}
    assert asked(store, mode=VectorStoreQueryMode.TEXT_SEARCH) == ["d"]
    store.delete("doc1")
    store.delete_nodes(["d", "zzz"])
    assert asked(store) == ["c"]
    store.delete_nodes(filters=where("author", "Ann"))
    assert asked(store) == []


def test_a_node_added_again_is_replaced(store: FaissBm25VectorStore) -> None:
    store.add([TextNode(id_="a", text="meerkats", embedding=[0.0, 1.0])])
    assert asked(store, mode=VectorStoreQueryMode.TEXT_SEARCH, query_str="bread") == []
    assert asked(store, mode=VectorStoreQueryMode.TEXT_SEARCH, query_str="meerkats") == ["a"]
    assert len(store.get_nodes()) == 4
    store.clear()
    assert store.get_nodes() == [] and asked(store) == []


def test_embeddings_of_another_dimension_are_refused(store: FaissBm25VectorStore) -> None:
    with pytest.raises(RetrieverError, match="in a store of 2 dimensions"):
        store.add([TextNode(text="x", embedding=[1.0, 2.0, 3.0])])
    assert store.add([]) == []


def test_it_outlives_the_program(store: FaissBm25VectorStore, tmp_path: Path) -> None:
    store.persist(str(tmp_path / "nodes.jsonl"))
    again = FaissBm25VectorStore.from_persist_path(str(tmp_path / "nodes.jsonl"))
    assert asked(again, mode=VectorStoreQueryMode.HYBRID) == asked(store, mode=VectorStoreQueryMode.HYBRID)
    assert again.get_nodes(["c"])[0].metadata == {"year": 2010, "author": "Ann"}
    again.delete("doc1")
    assert set(asked(again)) == {"c", "d"}


def everything(store: FaissBm25VectorStore) -> set[str]:
    return {node.node_id for node in store.get_nodes()}


def test_deleting_takes_no_more_than_was_named(store: FaissBm25VectorStore) -> None:
    """An empty list is what a program has that found nothing to delete."""
    store.add([TextNode(id_="e", text="of no document", embedding=[1.0, 1.0])])
    empty = MetadataFilters(filters=[])
    nested = MetadataFilters(filters=[empty, where("author", "Ann")], condition=FilterCondition.OR)
    inverse = MetadataFilters(filters=[where("year", [], "in")], condition=FilterCondition.NOT)
    store.delete_nodes()
    store.delete_nodes([])
    store.delete_nodes([], where("author", "Ann"))
    store.delete_nodes(["zzz", ""])
    for hollow in (empty, nested, inverse, where("tags", [], "all"), where("year", [], "nin")):
        store.delete_nodes(filters=hollow)
        store.delete_nodes(None, hollow)
        store.delete_nodes([], hollow)
    store.delete("")
    store.delete(None)  # type: ignore[arg-type]  # the ref_doc_id of a node without a document
    assert everything(store) == set("abcde")
    with pytest.raises(RetrieverError, match="give a list of ids"):
        store.delete_nodes("abc")  # type: ignore[arg-type]
    store.delete_nodes(["a", "zzz"], empty)
    assert everything(store) == set("bcde"), "the ids say what is meant"
    store.delete_nodes(["b", "c"], where("author", "Ann"))
    assert everything(store) == set("bde")


def test_an_empty_list_of_ids_gives_no_nodes(store: FaissBm25VectorStore) -> None:
    assert store.get_nodes([]) == []
    assert store.get_nodes([], where("author", "Ann")) == []
    assert len(store.get_nodes()) == 4


def test_a_write_that_fails_leaves_the_older_file(store: FaissBm25VectorStore, tmp_path: Path) -> None:
    path = tmp_path / "new" / "nodes.jsonl"
    store.persist(str(path))
    before = path.read_bytes()
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    store.add([TextNode(id_="z", text="x" * 1_000_000, embedding=[1.0, 1.0])])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # as a full disk stops it
    try:
        with pytest.raises(OSError, match="File too large"):
            store.persist(str(link))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    store.persist(f"file://{link}")
    assert link.is_symlink() and len(everything(FaissBm25VectorStore.from_persist_path(str(path)))) == 5


def test_a_torn_file_is_told(store: FaissBm25VectorStore, tmp_path: Path) -> None:
    path = tmp_path / "nodes.jsonl"
    store.persist(str(path))
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for torn in (
        b"",
        whole[:-30],
        b"".join(lines[:3]),
        b"".join(lines[1:]),
        b"\0" * 100,
        b'{"dimension": 2, "nodes": 1}\n1',
    ):
        path.write_bytes(torn)
        with pytest.raises(RetrieverError, match="is torn or no file of a vector store: take an older copy"):
            FaissBm25VectorStore.from_persist_path(str(path))
    path.write_bytes(b"".join([b'{"dimension": 2}\n', *lines[1:]]))
    assert everything(FaissBm25VectorStore.from_persist_path(str(path))) == set("abcd"), "of an older version"


DOCUMENTS = {
    "bakery.md": "Rye bread is made with sourdough. The dough rests for a night. The bakery opens at six.",
    "sea.md": "The lighthouse keeper writes his log every evening. Storms are most common in November.",
    "meerkats.md": "Meerkats live in groups. One of them always stands guard while the others dig for beetles.",
}


@pytest.fixture(scope="module")
def embedding() -> LocalEmbedding:
    return LocalEmbedding(Embedder(resolve_embedder("bundled:minilm")))


@pytest.mark.slow
def test_a_plain_llama_index_program(embedding: LocalEmbedding) -> None:
    documents = [Document(text=text, id_=name, metadata={"file": name}) for name, text in DOCUMENTS.items()]
    store = FaissBm25VectorStore(384)
    index = VectorStoreIndex.from_documents(
        documents,
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=embedding,
        transformations=[SentenceSplitter(chunk_size=40, chunk_overlap=0)],
    )
    for mode in ("default", "hybrid", "mmr"):
        retriever = index.as_retriever(similarity_top_k=1, vector_store_query_mode=mode)
        found = retriever.retrieve("Which animals keep watch?")
        assert found[0].node.metadata["file"] == "meerkats.md"
    filtered = index.as_retriever(similarity_top_k=5, filters=where("file", "sea.md")).retrieve("bread")
    assert {one.node.metadata["file"] for one in filtered} == {"sea.md"}
    index.delete_ref_doc("meerkats.md")
    left = index.as_retriever(similarity_top_k=10).retrieve("Which animals keep watch?")
    assert {one.node.metadata["file"] for one in left} == {"bakery.md", "sea.md"}


def test_the_hybrid_retriever_in_a_query_pipeline(embedding: LocalEmbedding) -> None:
    store = FaissBm25VectorStore(384)
    nodes = [TextNode(id_=name, text=text) for name, text in DOCUMENTS.items()]
    for node, vector in zip(nodes, embedding.get_text_embedding_batch([node.text for node in nodes]), strict=True):
        node.embedding = vector
    store.add(nodes)
    retriever = HybridRetriever(store.searcher(embedding.get_query_embedding), store.nodes_by_id, k=2)
    found = retriever.retrieve("When are there storms?")
    assert found[0].node.node_id == "sea.md"
    assert [one.score for one in found] == sorted((one.score or 0 for one in found), reverse=True)
    assert asyncio.run(retriever.aretrieve("When are there storms?")) == found
    words = HybridRetriever(retriever._searcher, store.nodes_by_id, options=SearchOptions("keyword"))
    assert [one.node.node_id for one in words.retrieve("beetles")] == ["meerkats.md"]
    given = QueryBundle("", embedding=embedding.get_query_embedding("sourdough"))
    assert retriever.retrieve(given)[0].node.node_id == "bakery.md"


def test_a_chunk_that_went_since_is_left_out(store: FaissBm25VectorStore) -> None:
    searcher = store.searcher(lambda question: [1.0, 0.0])
    retriever = HybridRetriever(searcher, lambda ids: [None, *store.nodes_by_id(ids[1:])], k=3)
    assert [one.node.node_id for one in retriever.retrieve("rye")] == ["b", "d"]


def test_a_question_without_an_embedding_model_is_told(store: FaissBm25VectorStore) -> None:
    with pytest.raises(RetrieverError, match="needs an embedding"):
        asked(store, query_embedding=None)


def test_embeddings_are_the_same_one_by_one_and_awaited(embedding: LocalEmbedding) -> None:
    text = "a question"
    expected = pytest.approx(embedding.get_text_embedding(text), abs=1e-5)
    assert embedding.get_query_embedding(text) == expected
    assert asyncio.run(embedding.aget_query_embedding(text)) == expected
    assert asyncio.run(embedding.aget_text_embedding_batch([text, "b"]))[0] == expected
