"""Engines of llama-index over any retriever: nodes stay apart, and with that find their KV."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from llama_index.core.base.response.schema import AsyncStreamingResponse, Response, StreamingResponse
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import Document, MetadataMode, NodeWithScore, QueryBundle, TextNode

from app import RagPipeline
from app.answering.answerer import NOTHING_FOUND
from app.answering.stream import CUT_OFF
from app.llama.engines import CachedChatEngine, CachedQueryEngine, CatalogRetriever, KVGenTransform
from app.llama.synthesizer import CachedSynthesizer, retrieved_nodes
from app.samples import read_samples
from splitter.nodes import FixedNodeParser

QUESTION = "Who designed the lighthouse?"


class Fixed(BaseRetriever):
    """Always the same nodes; it remembers what it was asked."""

    def __init__(self, nodes: Sequence[TextNode]) -> None:
        self._nodes = nodes
        self.asked: list[str] = []
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.asked.append(query_bundle.query_str)
        return [NodeWithScore(node=node, score=1 / rank) for rank, node in enumerate(self._nodes, start=1)]


@pytest.fixture(scope="module")
def nodes(pipeline: RagPipeline) -> list[TextNode]:
    """Three nodes of a document that no collection holds, by our splitter, their KV computed; last one first."""
    text = read_samples()["bakery.md"].replace("bakery", "bake-house")
    document = Document(text=text, doc_id="doc", metadata={"file_name": "oven.md", "page_label": "4"})
    parser = FixedNodeParser(tokens=pipeline.answering.template.tokens, max_tokens=150)
    made = KVGenTransform(pipeline.answering)(parser.get_nodes_from_documents([document]))
    assert all(isinstance(node, TextNode) for node in made)
    return [node for node in made[2::-1] if isinstance(node, TextNode)]


def test_a_response_carries_nodes_citations_and_report(pipeline: RagPipeline, nodes: list[TextNode]) -> None:
    response = CachedQueryEngine(pipeline, Fixed(nodes), max_tokens=8).query(QUESTION)
    assert isinstance(response, Response)
    assert response.response
    assert response.metadata is not None
    citations = response.metadata["citations"]
    in_document_order = [node.node_id for node in reversed(nodes)]
    assert [one.node.node_id for one in response.source_nodes] == in_document_order
    assert [one["chunk_id"] for one in citations] == in_document_order
    first = nodes[-1]
    assert (citations[0]["start"], citations[0]["end"]) == (first.start_char_idx, first.end_char_idx)
    assert (citations[0]["source"], citations[0]["pages"], citations[0]["text"]) == (
        "oven.md",
        ((4, "page"),),
        first.text,
    )
    report = response.metadata["report"]
    assert [chunk["tier"] for chunk in report["chunks"]] == ["ram"] * 3
    assert [chunk["chunk"] for chunk in report["chunks"]] == [
        pipeline.answering.template.chunk(node.text).hash for node in reversed(nodes)
    ]


def test_the_own_collection_is_searched_where_there_is_no_retriever(pipeline: RagPipeline) -> None:
    pipeline.ask(QUESTION)  # what it lacks is captured behind it, and serves the next
    pipeline.settle()
    response = CachedQueryEngine(pipeline).query(QUESTION)
    ours = pipeline.ask(QUESTION)
    assert [one.node.node_id for one in response.source_nodes] == [str(one.chunk_id) for one in ours.citations]
    assert str(response) == ours.text
    node = response.source_nodes[0].node
    assert isinstance(node, TextNode)
    assert node.ref_doc_id == str(ours.citations[0].document_id)
    assert node.metadata["source"] == ours.citations[0].source


def test_neighbours_are_told_apart(pipeline: RagPipeline) -> None:
    found = CatalogRetriever(pipeline, top_k=1, neighbours=1).retrieve(QUESTION)
    assert [one.reason for one in retrieved_nodes(found)] == ["hit", "neighbour", "neighbour"][: len(found)]
    assert len(found) > 1
    assert len(CatalogRetriever(pipeline, top_tokens=1).retrieve(QUESTION)) == 1


def test_what_retrieval_left_out_is_told_with_the_answer(pipeline: RagPipeline) -> None:
    options = {"top_k": 4, "top_tokens": 1}
    response = CachedQueryEngine(pipeline, CatalogRetriever(pipeline, **options), max_tokens=2).query(QUESTION)
    ours = pipeline.ask(QUESTION, max_tokens=2, **options)
    assert len(ours.notes) == 3 and ours.notes[-1] == CUT_OFF
    assert response.metadata is not None
    assert tuple(response.metadata["notes"]) == ours.notes
    (node,) = CatalogRetriever(pipeline, **options).retrieve(QUESTION)
    assert node.node.get_content(MetadataMode.LLM).count("left out") == 0


def test_streams(pipeline: RagPipeline, nodes: list[TextNode]) -> None:
    whole = str(CachedQueryEngine(pipeline, Fixed(nodes), max_tokens=8).query(QUESTION))
    engine = CachedQueryEngine(pipeline, Fixed(nodes), streaming=True, max_tokens=8)
    response = engine.query(QUESTION)
    assert isinstance(response, StreamingResponse)
    assert response.metadata == {}
    pieces = list(response.response_gen)
    assert len(pieces) > 1
    assert "".join(pieces) == whole
    assert len(response.metadata["citations"]) == 3

    async def ask() -> tuple[str, str]:
        streamed = await engine.aquery(QUESTION)
        assert isinstance(streamed, AsyncStreamingResponse)
        text = "".join([piece async for piece in streamed.async_response_gen()])
        assert streamed.metadata is not None
        assert streamed.metadata["report"]["answer_tokens"] == 8
        return text, str(await CachedQueryEngine(pipeline, Fixed(nodes), max_tokens=8).aquery(QUESTION))

    assert asyncio.run(ask()) == (whole, whole)


def test_the_synthesizer_serves_an_engine_of_llama_index(pipeline: RagPipeline, nodes: list[TextNode]) -> None:
    debug = LlamaDebugHandler(print_trace_on_end=False)
    synthesizer = CachedSynthesizer(pipeline.answering, max_tokens=8, callback_manager=CallbackManager([debug]))
    engine = RetrieverQueryEngine(Fixed(nodes), response_synthesizer=synthesizer)
    extra = NodeWithScore(node=TextNode(text="More."))
    assert len(engine.query(QUESTION).source_nodes) == 3
    assert debug.get_event_pairs(CBEventType.SYNTHESIZE)
    both = synthesizer.synthesize(QUESTION, Fixed(nodes).retrieve(QUESTION), [extra])
    assert both.source_nodes[-1] is extra


def test_texts_without_nodes_are_answered_too(pipeline: RagPipeline, nodes: list[TextNode]) -> None:
    synthesizer = CachedSynthesizer(pipeline.answering, max_tokens=8)
    texts = [node.text for node in reversed(nodes)]
    text = synthesizer.get_response(QUESTION, texts)
    assert text == asyncio.run(synthesizer.aget_response(QUESTION, texts))
    assert text


def test_without_nodes_the_answer_says_so(pipeline: RagPipeline) -> None:
    response = CachedQueryEngine(pipeline, Fixed([TextNode(text=" \n")]), max_tokens=4).query(QUESTION)
    assert response.source_nodes == []
    assert response.metadata is not None
    assert response.metadata["notes"] == [NOTHING_FOUND, CUT_OFF]


def test_a_chat_remembers(pipeline: RagPipeline, nodes: list[TextNode]) -> None:
    CachedChatEngine(pipeline, Fixed(nodes), max_tokens=8).chat(QUESTION)  # what it lacks is captured behind it
    pipeline.settle()
    retriever = Fixed(nodes)
    engine = CachedChatEngine(pipeline, retriever, max_tokens=8)
    first = engine.chat(QUESTION)
    assert first.metadata is not None
    assert len(first.metadata["citations"]) == len(first.source_nodes) == 3
    streamed = engine.stream_chat("How tall is it?")
    pieces = list(streamed.response_gen)
    assert streamed.response == "".join(pieces)
    assert streamed.metadata["report"]["answer_tokens"] == 8
    assert retriever.asked == [QUESTION, f"{QUESTION}\nHow tall is it?"]
    assert [(one.role, one.content) for one in engine.chat_history] == [
        (MessageRole.USER, QUESTION),
        (MessageRole.ASSISTANT, str(first)),
        (MessageRole.USER, "How tall is it?"),
        (MessageRole.ASSISTANT, streamed.response),
    ]
    engine.reset()
    assert engine.chat_history == []
    assert str(engine.chat(QUESTION)) == str(first)


def test_a_chat_with_an_event_loop(pipeline: RagPipeline, nodes: list[TextNode]) -> None:
    history = [ChatMessage("Be brief.", role=MessageRole.SYSTEM), ChatMessage("Hello?", role=MessageRole.USER),
               ChatMessage("Hello.", role=MessageRole.ASSISTANT)]  # fmt: skip
    engine = CachedChatEngine(pipeline, Fixed(nodes), max_tokens=8)

    async def chat() -> tuple[str, str]:
        first = await engine.achat(QUESTION, history)
        streamed = await engine.astream_chat("How tall is it?")
        return str(first), "".join([piece async for piece in streamed.async_response_gen()])

    asyncio.run(chat())
    pipeline.settle()
    engine = CachedChatEngine(pipeline, Fixed(nodes), max_tokens=8)
    first, second = asyncio.run(chat())
    assert [one.content for one in engine.chat_history][1:] == [
        "Hello?",
        "Hello.",
        QUESTION,
        first,
        "How tall is it?",
        second,
    ]
    again = CachedChatEngine(pipeline, Fixed(nodes), chat_history=history, max_tokens=8)
    assert str(again.chat(QUESTION)) == first
