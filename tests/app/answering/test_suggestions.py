"""First questions are made of names and beginnings, and name nothing that is not in the documents."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.answering.pipeline import RagPipeline
from app.answering.suggestions import LONGEST, MOST, first_of_each, questions_of, suggested_questions
from app.library.catalog.records import Document, Found, StoredChunk

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def beginning(title: str, text: str, *headings: str) -> list[Found]:
    document = Document(1, 1, "a.md", "", 0, 0, "markdown", title, "ready", None, 0, NOW, NOW)
    chunk = StoredChunk(1, 1, 0, 0, len(text), text, 1, "", headings, (), ())
    return [Found(chunk, document)]


@pytest.mark.parametrize(
    ("chunks", "first"),
    [
        (beginning("Varn Skerry", "Varn Skerry is a low rock off the coast."), "What is Varn Skerry?"),
        (beginning("Tools", "A saddle quern is a mill of two stones."), "What is a saddle quern?"),
        (beginning("Handbook", "It is a text."), "What is “Handbook” about?"),
        (beginning("FAQ", "You ask.", "How is rye bread made?"), "How is rye bread made?"),
        (beginning("Bericht", "Das Dach ist alt.", "3.2 Prüfung der Pumpe"), "What is “Bericht” about?"),
    ],
)
def test_the_most_telling_question_comes_first(chunks: list[Found], first: str) -> None:
    assert next(questions_of(chunks)) == first


def test_headings_lose_their_numbers_and_empty_ones_ask_nothing() -> None:
    found = list(questions_of(beginning("Bericht", "Ja.", "3.2 Prüfung der Pumpe", "Introduction", "Bericht")))
    assert found == ["What is “Bericht” about?", "What is said about “Prüfung der Pumpe”?"]


def test_names_that_are_no_names_ask_nothing() -> None:
    assert list(questions_of(beginning("x" * 200, "y", "a\x1bb"))) == []


@pytest.mark.parametrize("subject", ["The pump\u202e\x1b[2J", f"The {'x' * 100}", "The\u00ad pump \u2028"])
def test_what_a_text_is_about_is_a_name_too(subject: str) -> None:
    text = f"{subject} is a machine.\nA saddle quern is a mill."
    assert next(questions_of(beginning("Title", text))) == "What is a saddle quern?"
    assert all(one.isprintable() and len(one) < LONGEST + 40 for one in questions_of(beginning("Title", text)))


def test_each_document_has_its_turn() -> None:
    assert first_of_each([["a1", "a2", "a3", "a4", "a5"], ["b1"], ["c1", "a1"]]) == ["a1", "b1", "c1", "a2"]
    assert first_of_each([]) == []


def test_they_are_the_same_each_time(pipeline: RagPipeline) -> None:
    library = pipeline.library
    collection = library.catalog.collections.get(pipeline.settings.collection)
    found = suggested_questions(library.catalog, collection)
    assert found == suggested_questions(library.catalog, collection)
    assert len(found) == MOST
    assert any("Varn Skerry" in one for one in found)
