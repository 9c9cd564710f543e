"""Over stored KV a query engine and a chat engine; the documents of a collection as a retriever of llama-index; and KV
at ingest, as a step of its ingestion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    MessageRole,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.chat_engine.types import AgentChatResponse, BaseChatEngine, StreamingAgentChatResponse
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TransformComponent

from app.answering import Answer, Asked
from app.answering.answerer import Answering
from app.answering.pipeline import RagPipeline
from app.answering.question_options import taking
from app.answering.standing import DocumentPlace
from app.answering.stream import AnswerStream, AsyncAnswerStream
from app.llama.synthesizer import CachedSynthesizer, answer_metadata, as_node, cited_nodes
from app.models.cores import in_thread
from app.prompt import Turn


class CatalogRetriever(BaseRetriever):
    """Takes the options of `RagPipeline.retrieve`: collection, top_k, top_tokens, neighbours, mmr, where."""

    @taking(Asked)
    def __init__(self, pipeline: RagPipeline, **options: Any) -> None:
        self._pipeline = pipeline
        self._options = options
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self._pipeline.search(query_bundle.query_str, **self._options)
        return [as_node(one, found.notes) for one in found.chunks]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await in_thread(self._retrieve, query_bundle)


class CachedQueryEngine(RetrieverQueryEngine):
    """llama-index's engine around a retriever, with our synthesizer: sync, async and streaming."""

    def __init__(
        self,
        pipeline: RagPipeline,
        retriever: BaseRetriever | None = None,
        *,
        streaming: bool = False,
        node_postprocessors: list[BaseNodePostprocessor] | None = None,
        callback_manager: CallbackManager | None = None,
        **request: Any,
    ) -> None:
        """The pipeline's own collection is searched unless there is a retriever. `request`: see CachedSynthesizer."""
        given = {"max_tokens": pipeline.settings.max_tokens} | request
        super().__init__(
            retriever or CatalogRetriever(pipeline),
            CachedSynthesizer(pipeline.answering, streaming=streaming, callback_manager=callback_manager, **given),
            node_postprocessors,
            callback_manager,
        )


@dataclass
class StreamingChatResponse(StreamingAgentChatResponse):
    """`metadata` holds citations, report and notes when the stream has ended."""

    metadata: dict[str, Any] = field(default_factory=dict)


class CachedChatEngine(BaseChatEngine):
    """One conversation, kept in memory. Chunks stay at the front of the prompt, so every turn finds their KV."""

    def __init__(
        self,
        pipeline: RagPipeline,
        retriever: BaseRetriever | None = None,
        *,
        chat_history: Sequence[ChatMessage] = (),
        node_postprocessors: Sequence[BaseNodePostprocessor] = (),
        **request: Any,
    ) -> None:
        """The pipeline's own collection is searched unless there is a retriever. `request`: see CachedSynthesizer."""
        self._pipeline = pipeline
        self._retriever = retriever or CatalogRetriever(pipeline)
        self._synthesizer = CachedSynthesizer(
            pipeline.answering, **({"max_tokens": pipeline.settings.max_tokens} | request)
        )
        self._postprocessors = list(node_postprocessors)
        self._messages = list(chat_history)
        self._last: list[DocumentPlace] = []  # of the chunks of the last prompt

    @property
    def chat_history(self) -> list[ChatMessage]:
        return list(self._messages)

    def reset(self) -> None:
        self._messages, self._last = [], []

    def chat(self, message: str, chat_history: list[ChatMessage] | None = None) -> AgentChatResponse:
        stream, nodes = self._start(message, chat_history)
        return self._told(message, stream.answer, nodes)

    async def achat(self, message: str, chat_history: list[ChatMessage] | None = None) -> AgentChatResponse:
        stream, nodes = await self._astart(message, chat_history)
        return self._told(message, await AsyncAnswerStream(stream).answer(), nodes)

    def stream_chat(self, message: str, chat_history: list[ChatMessage] | None = None) -> StreamingChatResponse:
        """`response_gen` computes as it is read, in the thread that reads it."""
        stream, nodes = self._start(message, chat_history)
        response = _streaming(stream, nodes)

        def pieces() -> ChatResponseGen:
            with stream:
                for piece in stream:
                    yield _chat_response(stream.text, piece)
                self._remember(message, stream.answer)
                response.metadata |= answer_metadata(stream.answer)

        response.chat_stream = pieces()
        return response

    async def astream_chat(self, message: str, chat_history: list[ChatMessage] | None = None) -> StreamingChatResponse:
        stream, nodes = await self._astart(message, chat_history)
        response = _streaming(stream, nodes)

        async def pieces() -> ChatResponseAsyncGen:
            async with AsyncAnswerStream(stream) as reader:
                async for piece in reader:
                    yield _chat_response(reader.text, piece)
                answer = await reader.answer()
                self._remember(message, answer)
                response.metadata |= answer_metadata(answer)

        response.achat_stream = pieces()
        return response

    def _start(self, message: str, history: list[ChatMessage] | None) -> tuple[AnswerStream, list[NodeWithScore]]:
        query = self._query(message, history)
        nodes = self._retriever.retrieve(query)
        for postprocessor in self._postprocessors:
            nodes = postprocessor.postprocess_nodes(nodes, query_bundle=query)
        return self._answered(message, nodes), nodes

    async def _astart(
        self, message: str, history: list[ChatMessage] | None
    ) -> tuple[AnswerStream, list[NodeWithScore]]:
        query = await in_thread(self._query, message, history)
        nodes = await self._retriever.aretrieve(query)
        for postprocessor in self._postprocessors:
            nodes = await postprocessor.apostprocess_nodes(nodes, query_bundle=query)
        return await in_thread(self._answered, message, nodes), nodes

    def _query(self, message: str, history: list[ChatMessage] | None) -> QueryBundle:
        if history is not None:
            self._messages = list(history)
        return QueryBundle(self._pipeline.condensed(_turns(self._messages), message))

    def _answered(self, message: str, nodes: list[NodeWithScore]) -> AnswerStream:
        return self._synthesizer.start(message, nodes, history=_turns(self._messages), last=self._last)

    def _told(self, message: str, answer: Answer, nodes: list[NodeWithScore]) -> AgentChatResponse:
        self._remember(message, answer)
        return AgentChatResponse(
            answer.text, source_nodes=cited_nodes(answer.citations, nodes), metadata=answer_metadata(answer)
        )

    def _remember(self, message: str, answer: Answer) -> None:
        self._last = [(citation.document_id, citation.start) for citation in answer.citations]
        self._messages += [
            ChatMessage(message, role=MessageRole.USER),
            ChatMessage(answer.text, role=MessageRole.ASSISTANT),
        ]


def _streaming(stream: AnswerStream, nodes: list[NodeWithScore]) -> StreamingChatResponse:
    # Not written to a memory of llama-index, which takes a thread that reads ahead of the user.
    return StreamingChatResponse(source_nodes=cited_nodes(stream.citations, nodes), is_writing_to_memory=False)


def _chat_response(text: str, piece: str) -> ChatResponse:
    return ChatResponse(message=ChatMessage(text, role=MessageRole.ASSISTANT), delta=piece)


def _turns(messages: Sequence[ChatMessage]) -> list[Turn]:
    """Questions with their answers; messages of other roles are no part of the conversation."""
    said = [one for one in messages if one.role in (MessageRole.USER, MessageRole.ASSISTANT)]
    return [
        (question.content or "", answer.content or "")
        for question, answer in pairwise(said)
        if question.role == MessageRole.USER
        and answer.role == MessageRole.ASSISTANT
        and (question.content or "").strip()
    ]


class KVGenTransform(TransformComponent):
    """Put it behind the node parser: it computes and stores the KV of the nodes, each document in its order, and hands
    them on as they are. Without it the first answer that uses a node does.
    """

    _answering: Answering = PrivateAttr()

    def __init__(self, answering: Answering) -> None:
        super().__init__()
        self._answering = answering

    @classmethod
    def class_name(cls) -> str:
        return "RagcacheKVGen"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        template, cache = self._answering.template, self._answering.cache
        if not cache.keep_missed:  # RAGCACHE_KV is off
            return nodes
        texts = [(node.ref_doc_id or node.node_id, node.get_content(MetadataMode.NONE)) for node in nodes]
        for _, document in groupby((one for one in texts if one[1].strip()), key=lambda one: one[0]):
            for _variant in cache.ingest(template.system(), [template.chunk(text) for _, text in document]):
                pass  # stored; nothing else is wanted of it
        return nodes
