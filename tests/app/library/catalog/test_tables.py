from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from app.library.catalog import Catalog
from app.library.catalog.records import Collection
from app.library.catalog.tables import AnyText, Json, Moment, PackedJson, PackedText, escape, unescape
from tests.app.library.catalog.samples import document

HOSTILE = ["a\0b", "\udcff.txt", "\x1a0041", "line\nbreak", "e\u0301", "\U0001f600", "", "%s '\"\\"]
anything = st.text(st.characters())


@given(anything)
@example("\x1a0041")
@example("\x1a\x1a0000\0")
def test_any_text_comes_back_and_can_be_stored_everywhere(text: str) -> None:
    safe = escape(text)
    assert unescape(safe) == text
    assert "\0" not in safe
    safe.encode()  # no surrogates


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\x1a")))
def test_plain_text_is_stored_as_it_is(text: str) -> None:
    assert escape(text) == text


@given(anything)
def test_packed_text_comes_back(text: str) -> None:
    column, dialect = PackedText(), sqlite.dialect()
    assert column.process_result_value(column.process_bind_param(text, dialect), dialect) == text


@given(st.recursive(anything | st.integers() | st.booleans() | st.none(), st.lists))
def test_json_comes_back(value: object) -> None:
    for column in (Json(), PackedJson()):
        stored = column.process_bind_param(value, sqlite.dialect())
        assert column.process_result_value(stored, sqlite.dialect()) == value


@pytest.mark.parametrize("column", [AnyText(), Json(), PackedText(), PackedJson(), Moment()])
def test_nothing_is_nothing(column: AnyText | Json | PackedText | PackedJson | Moment) -> None:
    assert column.process_bind_param(None, sqlite.dialect()) is None
    assert column.process_result_value(None, sqlite.dialect()) is None


def test_moments_are_in_utc() -> None:
    east = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    noon = datetime(2026, 1, 1, 7, tzinfo=UTC)
    column, dialect = Moment(), sqlite.dialect()
    assert column.process_bind_param(east, dialect) == noon
    assert column.process_result_value(noon.replace(tzinfo=None), dialect) == noon
    assert column.process_result_value(east, dialect) == noon


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_both_databases_keep_hostile_text(catalog: Catalog, collection: Collection, text: str) -> None:
    words = [f"<{text}>", "two"]
    record, chunks = document(words, source=f"/docs/{text}", title=text)
    written = catalog.documents.replace(collection, record, chunks)
    (found, _) = catalog.chunks.found(written.chunk_ids)
    assert (found.chunk.text, found.document.source, found.document.title) == (words[0], f"/docs/{text}", text)
    assert catalog.documents.layout(written.document_id).text == " ".join(words)
    assert list(catalog.documents.states(collection)) == [f"/docs/{text}"]
    assert catalog.documents.find(collection, f"/docs/{text}") == found.document
