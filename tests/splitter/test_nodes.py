"""The node parsers in a plain llama-index program."""

from __future__ import annotations

from itertools import pairwise

import pytest
from llama_index.core import Document, MockEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import MetadataMode, NodeRelationship
from pydantic import ValidationError

from splitter import SPLITTERS, SplitterError
from splitter.nodes import AutoNodeParser, FixedNodeParser, SemanticNodeParser, SpanNodeParser, StructureNodeParser
from tests.splitter.conftest import Words

PARSERS = (AutoNodeParser, FixedNodeParser, SemanticNodeParser, StructureNodeParser)
SAME = "The same words come again and again here. " * 20


def make(parser: type[SpanNodeParser], **settings: int) -> SpanNodeParser:
    return parser(tokens=Words(), embed_model=MockEmbedding(8), **{"min_tokens": 5, "max_tokens": 30, **settings})


def test_every_splitter_has_a_parser() -> None:
    assert sorted(parser.splitter for parser in PARSERS) == sorted(SPLITTERS)


@pytest.mark.parametrize("parser", PARSERS)
def test_places_are_exact_where_the_text_repeats_itself(parser: type[SpanNodeParser]) -> None:
    document = Document(text=f"\n\n{SAME}\n\n{SAME}")
    nodes = make(parser).get_nodes_from_documents([document])
    spans = [(node.start_char_idx, node.end_char_idx) for node in nodes]
    assert [document.text[start:end] for start, end in spans] == [node.text for node in nodes]
    assert len(spans) > 5
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(node.relationships[NodeRelationship.PREVIOUS].node_id == before.node_id
               for before, node in pairwise(nodes))  # fmt: skip


@pytest.mark.parametrize("parser", PARSERS)
def test_ids_are_the_same_next_time_and_differ_within(parser: type[SpanNodeParser]) -> None:
    documents = [Document(text=SAME, id_="one"), Document(text=SAME, id_="two")]
    ids = [[node.node_id for node in make(parser).get_nodes_from_documents(documents)] for _ in range(2)]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(ids[0])


def test_ids_may_be_one_s_own() -> None:
    parser = make(FixedNodeParser, id_func=lambda i, doc: f"{doc.node_id}-{i}")
    nodes = parser.get_nodes_from_documents([Document(text=SAME, id_="d")])
    assert [node.node_id for node in nodes] == [f"d-{place}" for place in range(len(nodes))]


def test_metadata_is_kept_and_headings_are_embedded() -> None:
    text = f"# A\n{SAME}\n## B\n{SAME}"
    document = Document(text=text, metadata={"file": "x.md", "kind": "markdown"}, excluded_embed_metadata_keys=["kind"])
    nodes = make(AutoNodeParser).get_nodes_from_documents([document])
    assert {node.metadata["heading"] for node in nodes} == {"A", "A > B"}
    assert all(node.metadata["file"] == "x.md" for node in nodes)
    assert "heading: A > B" in nodes[-1].get_content(MetadataMode.EMBED)
    assert "kind" not in nodes[-1].get_content(MetadataMode.EMBED)


def test_the_kind_of_a_document_chooses_the_splitter() -> None:
    rows = "\n".join(f"{place},{place}" for place in range(50))
    parsers = (make(AutoNodeParser), make(FixedNodeParser))
    items, fixed = (parser.get_nodes_from_documents([Document(text=rows, metadata={"kind": "items"})])
                    for parser in parsers)  # fmt: skip
    assert [node.text for node in items] == [node.text for node in fixed]
    with pytest.raises(SplitterError, match="unknown kind"):
        make(AutoNodeParser).get_nodes_from_documents([Document(text=rows, metadata={"kind": "poem"})])


def test_a_parser_is_a_step_of_a_pipeline() -> None:
    pipeline = IngestionPipeline(transformations=[make(StructureNodeParser), MockEmbedding(8)])
    nodes = pipeline.run(documents=[Document(text=SAME)])
    assert len(nodes) > 1
    assert all(node.embedding is not None and len(node.embedding) == 8 for node in nodes)


def test_limits_are_checked() -> None:
    with pytest.raises(ValidationError, match="min_tokens=20: choose from 1 to 15"):
        make(AutoNodeParser, min_tokens=20)
