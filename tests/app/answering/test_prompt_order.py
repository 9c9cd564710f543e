from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.answering import Retrieved
from app.answering.standing import as_they_stood, in_prompt_order


def chunk(document: int | str, ordinal: int) -> Retrieved:
    return Retrieved(document, f"{document}-{ordinal}", ordinal, "", "", (), 0, 1, "x", (), (), 0.0)


def names(chunks: list[Retrieved]) -> list[int | str]:
    return [one.chunk_id for one in chunks]


def test_document_order() -> None:
    found = [chunk(7, 2), chunk(3, 5), chunk(7, 1), chunk(3, 0)]
    assert names(in_prompt_order(found)) == ["3-0", "3-5", "7-1", "7-2"]


def test_the_documents_of_the_last_turn_lead_in_their_order() -> None:
    found = [chunk(3, 1), chunk(9, 0), chunk(7, 4), chunk(7, 3), chunk(1, 0)]
    assert names(in_prompt_order(found, last=[9, 7, 5])) == ["9-0", "7-3", "7-4", "1-0", "3-1"]


def test_documents_of_llama_index_come_by_rank() -> None:
    found = [chunk("z", 4), chunk("a", 2), chunk("z", 1)]
    assert names(in_prompt_order(found)) == ["z-1", "z-4", "a-2"]
    assert names(in_prompt_order(found, last=["a"])) == ["a-2", "z-1", "z-4"]


def test_what_comes_again_stands_as_it_stood() -> None:
    found = [replace(chunk(number, number), start=10 * number) for number in (1, 2, 3, 4)]
    assert names(as_they_stood(found, [(4, 40), (9, 0), (2, 20), (3, 31)])) == ["4-4", "2-2", "1-1", "3-3"]


@given(
    places=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), unique=True),
    last=st.lists(st.integers(0, 5), unique=True),
)
def test_no_chunk_is_lost_and_no_document_torn_apart(places: list[tuple[int, int]], last: list[int]) -> None:
    placed = in_prompt_order([chunk(*place) for place in places], last)
    assert sorted((int(one.document_id), one.ordinal) for one in placed) == sorted(places)
    documents = [one.document_id for one in placed]
    assert documents == sorted(documents, key=documents.index)
    for document in set(documents):
        ordinals = [one.ordinal for one in placed if one.document_id == document]
        assert ordinals == sorted(ordinals)


def test_documents_stand_as_in_the_collection_and_those_without_a_place_behind_them() -> None:
    places = {7: 0.5, 3: 2.0}
    found = [replace(chunk(number, 0), standing=places.get(number)) for number in (1, 3, 2, 7)]
    assert names(in_prompt_order(found)) == ["7-0", "3-0", "1-0", "2-0"]
    assert names(in_prompt_order(found, last=[2])) == ["2-0", "7-0", "3-0", "1-0"]
