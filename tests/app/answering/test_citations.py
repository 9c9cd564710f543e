from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import Settings
from app.answering import Citation, Quote, retrieved
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.records import ChunkRecord, DocumentRecord, Spans
from app.loaders.base import Line, Page, Place
from tests.app.library.catalog.samples import digest, make_collection, vector

TEXT = "First page.\n\nSecond page. It says more."
PAGES = (Page(1, "page", 0, 11), Page(2, "page", 13, len(TEXT)))
LINES = (
    Line(0, 11, 1, (10.0, 20.0, 90.0, 30.0)),
    Line(13, 25, 2, (10.0, 20.0, 80.0, 30.0)),
    Line(26, len(TEXT), 2, (10.0, 40.0, 70.0, 50.0)),
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(Settings(data_dir=tmp_path)) as opened:
        yield opened


def store(catalog: Catalog, text: str = TEXT, spans: Spans | None = None) -> Citation:
    """A document of one chunk, cited with its last sentence."""
    collection = catalog.collections.find("default") or make_collection(catalog)
    boxes = tuple((line.page, *line.box) for line in LINES)
    chunk = ChunkRecord(0, len(text), text, 9, digest(text), vector(text), (), ((1, "page"), (2, "page")), boxes, spans)
    record = DocumentRecord("/docs/a.pdf", digest(text), len(text), 1, "prose", "A", text, PAGES, LINES)
    ids = catalog.documents.replace(collection, record, [chunk]).chunk_ids
    citation = Citation.of(1, retrieved(catalog.chunks.found(ids)[0], 0.5))
    return replace(citation, quote=Quote(26, len(text), text[26:], ((2, "page"),), 0.9))


def test_a_citation_opens_the_page_and_the_lines_of_its_quote(catalog: Catalog) -> None:
    cited = store(catalog)
    assert cited.place == "a.pdf, page 2"
    assert cited.locate(catalog) == [Place(2, "page", ((10.0, 40.0, 70.0, 50.0),))]


def no_documents(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(document_id: int) -> NoReturn:
        raise AssertionError("a chunk knows its pages, and a document has thousands")

    monkeypatch.setattr(catalog.documents, "layout", read)


def test_the_document_is_not_read_for_it(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = tuple((one.start, one.end) for one in PAGES), tuple((one.start, one.end) for one in LINES)
    cited = store(catalog, spans=spans)
    expected = [cited.locate(catalog), replace(cited, quote=None).locate(catalog)]
    older = store(catalog)  # as a chunk that was stored before chunks knew
    assert [older.locate(catalog), replace(older, quote=None).locate(catalog)] == expected
    known = store(catalog, spans=spans)
    no_documents(catalog, monkeypatch)
    assert [known.locate(catalog), replace(known, quote=None).locate(catalog)] == expected
    with pytest.raises(AssertionError, match="knows its pages"):
        replace(known, quote=replace(known.quote, text="It said more.")).locate(catalog)  # type: ignore[type-var]  # there is one


def test_a_citation_of_a_chunk_that_was_replaced_asks_the_document(catalog: Catalog) -> None:
    spans = tuple((one.start, one.end) for one in PAGES), tuple((one.start, one.end) for one in LINES)
    cited = store(catalog, spans=spans)
    store(catalog, spans=spans)  # the same text, in new chunks
    assert cited.locate(catalog) == [Place(2, "page", ((10.0, 40.0, 70.0, 50.0),))]


def test_without_a_quote_it_opens_the_chunk(catalog: Catalog) -> None:
    cited = replace(store(catalog), quote=None)
    assert cited.place == "a.pdf, pages 1-2"
    assert [(place.page, len(place.boxes)) for place in cited.locate(catalog)] == [(1, 1), (2, 2)]


def test_a_document_that_changed_is_opened_where_it_said_so(catalog: Catalog) -> None:
    cited = store(catalog)
    store(catalog, "Something else entirely, and no longer what was cited.")
    assert cited.locate(catalog) == [Place(2, "page", ((10.0, 20.0, 80.0, 30.0), (10.0, 40.0, 70.0, 50.0)))]


def test_a_document_that_is_gone_is_too(catalog: Catalog) -> None:
    cited = store(catalog)
    assert isinstance(cited.document_id, int)
    catalog.documents.delete(catalog.collections.get("default"), [cited.document_id])
    assert [place.page for place in cited.locate(catalog)] == [2]


def test_a_node_of_llama_index_has_its_pages(catalog: Catalog) -> None:
    cited = replace(store(catalog), document_id="node", quote=None)
    assert [place.page for place in cited.locate(catalog)] == [1, 2]


def test_where_there_are_no_pages_the_heading_tells_the_place(catalog: Catalog) -> None:
    cited = replace(store(catalog), pages=(), quote=None, heading=("Setup", "Linux"), source="/docs/guide.md")
    assert cited.place == "guide.md, Setup > Linux"
    assert replace(cited, heading=()).place == "guide.md"
    assert "\n" not in replace(cited, source="/docs/a\nb.md").place


names = st.tuples(st.integers(1, 99), st.sampled_from(["page", "slide", "sheet", "chapter"]))
quotes = st.builds(Quote, st.integers(0), st.integers(0), st.text(), st.lists(names).map(tuple), st.floats(-1, 1))
boxes = st.tuples(st.integers(1, 9), *[st.floats(0, 999)] * 4)
citations = st.builds(
    Citation,
    st.integers() | st.text(), st.integers() | st.text(), st.integers(0), st.text(), st.text(),
    st.lists(names).map(tuple), st.integers(0), st.integers(0), st.text(), st.lists(st.text()).map(tuple),
    st.lists(boxes).map(tuple), st.floats(0, 1), st.integers(1), st.none() | quotes,
)  # fmt: skip


@given(citation=citations)
def test_a_citation_comes_back_from_json(citation: Citation) -> None:
    assert Citation.from_dict(json.loads(json.dumps(citation.to_dict()))) == citation
