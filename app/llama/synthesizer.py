"""A response synthesizer that keeps the nodes apart."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.callbacks.schema import CBEventType, EventPayload
from llama_index.core.instrumentation.events.synthesis import SynthesizeEndEvent, SynthesizeStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType, TextNode
from llama_index_instrumentation import get_dispatcher

from app.answering.answerer import Answering, AnswerRequest
from app.answering.stream import AnswerStream, AsyncAnswerStream
from app.llama.nodes import cited_nodes, retrieved_nodes, told
from app.models.cores import in_thread

dispatcher = get_dispatcher(__name__)


class CachedSynthesizer(BaseSynthesizer):
    """Answers from nodes, with their stored KV. `response.metadata` holds citations, report and notes.

    Citation n is of the n-th source node: those that were in the prompt, in its order. The metadata of a stream are
    complete when it ends.
    """

    def __init__(
        self,
        answering: Answering,
        *,
        streaming: bool = False,
        callback_manager: CallbackManager | None = None,
        **request: Any,
    ) -> None:
        """`request`: fields of app.answering.answerer.AnswerRequest that hold for every answer, such as max_tokens."""
        # The base class wants an llm of llama-index, and would import one of a service; this one is never asked.
        super().__init__(llm=MockLLM(), streaming=streaming, callback_manager=callback_manager or CallbackManager([]))
        self._answering = answering
        self._request = request

    def synthesize(
        self,
        query: QueryType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        """`response_kwargs`: fields of AnswerRequest for this answer alone, such as history."""
        question = query.query_str if isinstance(query, QueryBundle) else query
        with self._observed(question) as responses:
            stream = self.start(question, nodes, **response_kwargs)
            responses.append(self._respond(stream, nodes, additional_source_nodes or ()))
        return responses[0]

    async def asynthesize(
        self,
        query: QueryType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,
    ) -> RESPONSE_TYPE:
        question = query.query_str if isinstance(query, QueryBundle) else query
        with self._observed(question) as responses:
            stream = await in_thread(self.start, question, nodes, **response_kwargs)
            responses.append(await self._arespond(stream, nodes, additional_source_nodes or ()))
        return responses[0]

    def start(self, question: str, nodes: Sequence[NodeWithScore], **request: Any) -> AnswerStream:
        """The answer as our own pipeline gives it."""
        return self._answering.start(AnswerRequest(question, retrieved_nodes(nodes), **(self._request | request)))

    def get_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> str:
        return self.start(query_str, _nodes(text_chunks), **response_kwargs).answer.text

    async def aget_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> str:
        stream = await in_thread(self.start, query_str, _nodes(text_chunks), **response_kwargs)
        return (await AsyncAnswerStream(stream).answer()).text

    def _get_prompts(self) -> PromptDictType:
        """The prompt is that of the cache: another one would fit no stored KV."""
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        pass

    @contextmanager
    def _observed(self, question: str) -> Iterator[list[RESPONSE_TYPE]]:
        """Tell llama-index's observers of the start, and of the response that is put into the list."""
        dispatcher.event(SynthesizeStartEvent(query=question))
        responses: list[RESPONSE_TYPE] = []
        asked: dict[str, Any] = {EventPayload.QUERY_STR: question}
        with self._callback_manager.event(CBEventType.SYNTHESIZE, payload=asked) as event:
            yield responses
            event.on_end(payload={EventPayload.RESPONSE: responses[0]})
        dispatcher.event(SynthesizeEndEvent(query=question, response=responses[0]))

    def _respond(
        self, stream: AnswerStream, nodes: Sequence[NodeWithScore], more: Sequence[NodeWithScore]
    ) -> Response | StreamingResponse:
        sources = [*cited_nodes(stream.citations, nodes), *more]
        if not self._streaming:
            answer = stream.answer
            return Response(answer.text, sources, told(answer))
        metadata: dict[str, Any] = {}

        def pieces() -> Generator[str]:
            with stream:
                yield from stream
                metadata.update(told(stream.answer))

        return StreamingResponse(pieces(), sources, metadata)

    async def _arespond(
        self, stream: AnswerStream, nodes: Sequence[NodeWithScore], more: Sequence[NodeWithScore]
    ) -> Response | AsyncStreamingResponse:
        sources = [*cited_nodes(stream.citations, nodes), *more]
        if not self._streaming:
            answer = await AsyncAnswerStream(stream).answer()
            return Response(answer.text, sources, told(answer))
        metadata: dict[str, Any] = {}

        async def pieces() -> AsyncGenerator[str]:
            async with AsyncAnswerStream(stream) as reader:
                async for piece in reader:
                    yield piece
                metadata.update(told(await reader.answer()))

        return AsyncStreamingResponse(pieces(), sources, metadata)


def _nodes(texts: Sequence[str]) -> list[NodeWithScore]:
    """Texts that have lost their nodes; what they say still finds its KV."""
    return [NodeWithScore(node=TextNode(id_=str(place), text=text)) for place, text in enumerate(texts)]
