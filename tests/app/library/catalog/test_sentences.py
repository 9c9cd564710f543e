"""Sentences of long documents, which are written in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.library.catalog import Catalog, sentences
from app.library.catalog.records import ChunkRecord, Collection, DocumentRecord
from app.library.catalog.sentences import AT_ONCE, Sentences, insert_sentences, parts
from tests.app.library.catalog.samples import document

WORDS = [f"word{number}" for number in range(9)]
EACH = b"vectors!"
SIZES = st.lists(st.sampled_from([None, 0, 1, 7, AT_ONCE // 3, AT_ONCE // 2, AT_ONCE, AT_ONCE + 1]), max_size=9)


class Killed(BaseException):
    """No code catches it, as none runs any more in a process that is killed."""


class Sized(bytes):
    """It says how long it is, and takes no room."""

    size = 0

    def __len__(self) -> int:
        return self.size


def sized(size: int) -> Sized:
    made = Sized()
    made.size = size
    return made


@given(SIZES)
def test_parts_are_all_in_order_and_no_longer_than_one_may_be(sizes: list[int | None]) -> None:
    found = parts([None if size is None else sized(size) for size in sizes])
    assert [place for part in found for place in range(part.start, part.stop)] == list(range(len(sizes)))
    held = [sum(size or 0 for size in sizes[part]) for part in found]
    assert all(one <= AT_ONCE or part.stop - part.start == 1 for one, part in zip(held, found, strict=True))
    followed = [size or 0 for size in (sizes[part.start] for part in found[1:])]
    assert all(one + then > AT_ONCE for one, then in zip(held, followed, strict=False)), "as few as may be"


def long_document(catalog: Catalog, collection: Collection, words: Sequence[str] = WORDS) -> tuple[int, ...]:
    record, chunks = document(words)
    chunks = [replace(chunk, sentences=EACH + bytes([place])) for place, chunk in enumerate(chunks)]
    return whole(catalog, collection, record, chunks)


def whole(
    catalog: Catalog, collection: Collection, record: DocumentRecord, chunks: Sequence[ChunkRecord]
) -> tuple[int, ...]:
    ids = catalog.documents.replace(collection, record, chunks).chunk_ids
    catalog.sentences.add_rest(collection, ids, [chunk.sentences for chunk in chunks])
    return ids


def written(catalog: Catalog, ids: Sequence[int]) -> set[int]:
    return {*ids} - {one for one, _ in catalog.sentences.lacking(catalog.collections.get("default"), 0, 99)}


def test_those_of_a_long_document_come_in_parts(
    catalog: Catalog, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, "AT_ONCE", 3 * (len(EACH) + 1))
    seen: list[int] = []
    real = insert_sentences
    monkeypatch.setattr(
        sentences, "insert_sentences", lambda connection, rows: seen.append(len(rows)) or real(connection, rows)
    )
    ids = long_document(catalog, collection)
    assert seen == [3, 3], "beside the first three, which came with the document"
    assert written(catalog, ids) == {*ids}
    again = long_document(catalog, collection, [*WORDS, "more"])
    assert written(catalog, again) == {*again} and not {*again} & {*ids}
    assert catalog.sentences.unfinished(collection) is None


def test_the_log_is_short_again_behind_a_long_document(
    catalog: Catalog, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless somebody reads: nobody waits for it, then or later."""
    if (file := catalog.database.path) is None:
        return
    monkeypatch.setattr(sentences, "AT_ONCE", 3 * (len(EACH) + 1))
    log, found = file.with_name(f"{file.name}-wal"), list[int]()
    real = Sentences.add

    def add(self: Sentences, *rest: object) -> None:
        found.append(log.stat().st_size)
        real(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Sentences, "add", add)
    long_document(catalog, collection, [word * 50_000 for word in WORDS])
    assert found[0] == 0
    with catalog.database.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM chunks").one()
        long_document(catalog, collection, [word * 60_000 for word in WORDS])
    assert found[2] > 9 * 60_000 * 5
    assert catalog.documents.all(collection)[0].size > 9 * 60_000 * 5


@pytest.mark.parametrize("after", [0, 1])
def test_what_a_killed_one_has_left_is_told(
    catalog: Catalog, collection: Collection, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    long_document(catalog, collection, ["whole"])
    monkeypatch.setattr(sentences, "AT_ONCE", 3 * (len(EACH) + 1))
    real, calls = Sentences.add, list[object]()

    def add(self: Sentences, *rest: object) -> None:
        if len(calls) == after:
            raise Killed
        calls.append(rest)
        real(self, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Sentences, "add", add)
        record, chunks = document(WORDS, "/docs/b.txt")
        whole(catalog, collection, record, [replace(chunk, sentences=EACH) for chunk in chunks])
    above = catalog.sentences.unfinished(collection)
    assert above is not None
    left = catalog.sentences.lacking(collection, above, 99)
    assert [text for _, text in left] == WORDS[3 * (1 + after) :]
    catalog.sentences.add(collection, [(one, EACH) for one, _ in left])
    assert catalog.sentences.unfinished(collection) is None


def test_a_document_of_before_is_not_unfinished(catalog: Catalog, collection: Collection) -> None:
    assert catalog.sentences.unfinished(collection) is None
    catalog.documents.replace(collection, *document(WORDS))
    assert catalog.sentences.unfinished(collection) is None
    assert len(catalog.sentences.lacking(collection, 0, 99)) == len(WORDS)
