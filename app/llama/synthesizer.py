"""A response synthesizer that keeps the nodes apart, and what stands between these and our own chunks and answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

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
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    QueryType,
    RelatedNodeInfo,
    TextNode,
)
from llama_index_instrumentation import get_dispatcher

from app.answering import Answer, Citation, Retrieved
from app.answering.answerer import Answering, AnswerRequest
from app.answering.stream import AnswerStream, AsyncAnswerStream
from app.library.catalog.records import PageName
from app.models.cores import in_thread
from splitter.base import HEADING_SEPARATOR
from splitter.nodes import HEADING

# Keys that readers of llama-index give to where a document comes from, best first.
SOURCES = ("source", "file_path", "file_name", "url")
PAGE = "page_label"
REASON: Final = "retrieved_as"
NOTES: Final = "retrieval_notes"
NEIGHBOUR: Final = "neighbour"
dispatcher = get_dispatcher(__name__)


def retrieved_nodes(nodes: Sequence[NodeWithScore]) -> list[Retrieved]:
    """As our own chunks, in their order; blank ones cannot stand in a prompt and are left out."""
    found = [_retrieved(scored.node, scored.score or 0.0) for scored in nodes]
    return [one for one in found if one.text.strip()]


def _retrieved(node: BaseNode, score: float) -> Retrieved:
    text = node.get_content(MetadataMode.NONE)  # metadata in the text would change its tokens, and so its KV
    document = node.ref_doc_id or node.node_id
    start = node.start_char_idx if isinstance(node, TextNode) and node.start_char_idx is not None else 0
    source = next((str(node.metadata[key]) for key in SOURCES if node.metadata.get(key)), document)
    return Retrieved(
        document_id=document,
        chunk_id=node.node_id,
        ordinal=start,
        source=source,
        title=str(node.metadata.get("title", source)),
        pages=_pages(node.metadata),
        start=start,
        end=start + len(text),
        text=text,
        heading=_heading(node.metadata.get(HEADING)),
        boxes=(),
        score=score,
        reason=NEIGHBOUR if node.metadata.get(REASON) == NEIGHBOUR else "hit",
    )


def _pages(metadata: dict[str, Any]) -> tuple[PageName, ...]:
    label = str(metadata.get(PAGE, ""))
    return ((int(label), "page"),) if label.isdecimal() else ()


def _heading(heading: object) -> tuple[str, ...]:
    return tuple(heading.split(HEADING_SEPARATOR)) if isinstance(heading, str) and heading else ()


def cited_nodes(citations: Sequence[Citation], nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """The nodes that stood in the prompt: citation n is of the n-th."""
    by_id = {scored.node.node_id: scored for scored in nodes}
    return [by_id[str(citation.chunk_id)] for citation in citations]


def as_node(one: Retrieved, notes: Sequence[str] = ()) -> NodeWithScore:
    """A chunk of the catalog, the same node each time but for what its user should know of how it was found."""
    metadata: dict[str, Any] = {"source": one.source, "title": one.title}
    if one.heading:
        metadata[HEADING] = HEADING_SEPARATOR.join(one.heading)
    if one.pages:
        metadata[PAGE] = str(one.pages[0][0])
    if one.reason == NEIGHBOUR:
        metadata[REASON] = one.reason
    if notes:
        metadata[NOTES] = list(notes)  # each node has them: any may be left out on the way to an answer
    node = TextNode(
        id_=str(one.chunk_id),
        text=one.text,
        metadata=metadata,
        excluded_llm_metadata_keys=[NOTES],
        excluded_embed_metadata_keys=[NOTES],
        start_char_idx=one.start,
        end_char_idx=one.end,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=str(one.document_id))},
    )
    return NodeWithScore(node=node, score=one.score)


def answer_metadata(answer: Answer) -> dict[str, Any]:
    """For the metadata of a response."""
    values = answer.to_dict()
    return {name: values[name] for name in ("citations", "report", "notes")}


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
        told = dict.fromkeys(note for scored in nodes for note in _notes(scored.node.metadata.get(NOTES)))
        given = {"notes": tuple(told)} | self._request | request
        return self._answering.start(AnswerRequest(question, retrieved_nodes(nodes), **given))

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
            return Response(answer.text, sources, answer_metadata(answer))
        metadata: dict[str, Any] = {}

        def pieces() -> Generator[str]:
            with stream:
                yield from stream
                metadata.update(answer_metadata(stream.answer))

        return StreamingResponse(pieces(), sources, metadata)

    async def _arespond(
        self, stream: AnswerStream, nodes: Sequence[NodeWithScore], more: Sequence[NodeWithScore]
    ) -> Response | AsyncStreamingResponse:
        sources = [*cited_nodes(stream.citations, nodes), *more]
        if not self._streaming:
            answer = await AsyncAnswerStream(stream).answer()
            return Response(answer.text, sources, answer_metadata(answer))
        metadata: dict[str, Any] = {}

        async def pieces() -> AsyncGenerator[str]:
            async with AsyncAnswerStream(stream) as reader:
                async for piece in reader:
                    yield piece
                metadata.update(answer_metadata(await reader.answer()))

        return AsyncStreamingResponse(pieces(), sources, metadata)


def _nodes(texts: Sequence[str]) -> list[NodeWithScore]:
    """Texts that have lost their nodes; what they say still finds its KV."""
    return [NodeWithScore(node=TextNode(id_=str(place), text=text)) for place, text in enumerate(texts)]


def _notes(told: object) -> list[str]:
    """Nodes may come from anywhere, with anything under that name."""
    return [note for note in told if isinstance(note, str)] if isinstance(told, list | tuple) else []
