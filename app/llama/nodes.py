"""Between the nodes of llama-index and our own chunks and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from app.answering.answer import Answer, Citation, Retrieved
from app.library.catalog.records import PageName
from splitter.base import HEADING_SEPARATOR
from splitter.nodes import HEADING

# Keys that readers of llama-index give to where a document comes from, best first.
SOURCES = ("source", "file_path", "file_name", "url")
PAGE = "page_label"


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


def as_node(one: Retrieved) -> NodeWithScore:
    """A chunk of the catalog, the same node each time."""
    metadata: dict[str, Any] = {"source": one.source, "title": one.title}
    if one.heading:
        metadata[HEADING] = HEADING_SEPARATOR.join(one.heading)
    if one.pages:
        metadata[PAGE] = str(one.pages[0][0])
    node = TextNode(
        id_=str(one.chunk_id),
        text=one.text,
        metadata=metadata,
        start_char_idx=one.start,
        end_char_idx=one.end,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=str(one.document_id))},
    )
    return NodeWithScore(node=node, score=one.score)


def told(answer: Answer) -> dict[str, Any]:
    """For the metadata of a response."""
    values = answer.to_dict()
    return {name: values[name] for name in ("citations", "report", "notes")}
