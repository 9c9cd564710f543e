from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.answering import Citation
from app.answering.answerer import LIKELY, quoted
from app.library.catalog.records import PageName
from retriever import Vectors

TEXT = (
    "The rock is low. The tower was designed by Margaret Aldous. It has 38 metres! Nobody lives there. "
    "The keepers baked bread. Gulls nest on the gallery."
)


def citation(text: str = TEXT, start: int = 0, pages: tuple[PageName, ...] = ()) -> Citation:
    return Citation(1, 2, 0, "/a.md", "a", pages, start, start + len(text), text, (), (), 0.5, 1)


def by_words(texts: Sequence[str]) -> Vectors:
    """The first text is nearest to those that share its words."""
    words = [set(text.lower().strip(".!?").split()) for text in texts]
    return np.array([[1.0, len(one & words[0]) / len(one | words[0])] for one in words], dtype=np.float32)


def no_pages(cited: Citation, start: int, end: int, text: str) -> None:
    raise AssertionError("a chunk of one page, or none, needs no layout")


def test_the_quote_is_the_sentence_that_says_it_at_its_place() -> None:
    (found,) = quoted([citation(start=100)], "Who designed the tower?", "Margaret Aldous", by_words, no_pages)
    assert found.quote is not None
    assert found.quote.text == "The tower was designed by Margaret Aldous."
    assert TEXT[found.quote.start - 100 : found.quote.end - 100] == found.quote.text
    assert found.quote.pages == ()


def test_only_likely_sentences_are_embedded() -> None:
    seen: list[int] = []

    def embed(texts: Sequence[str]) -> Vectors:
        seen.append(len(texts))
        return by_words(texts)

    quoted([citation()] * 4, "Who?", "Margaret Aldous", embed, no_pages)
    assert seen == [1 + 4 * LIKELY]


def test_a_chunk_on_two_pages_asks_which_one_the_quote_is_on() -> None:
    asked: list[tuple[int | str, int, int, str]] = []

    def pages(cited: Citation, start: int, end: int, text: str) -> list[PageName]:
        asked.append((cited.document_id, start, end, text))
        return [(3, "page")]

    both = ((2, "page"), (3, "page"))
    (found,) = quoted([citation(pages=both)], "What do keepers do?", "They baked bread.", by_words, pages)
    assert found.quote is not None
    assert asked == [(1, found.quote.start, found.quote.end, "The keepers baked bread.")]
    assert found.quote.pages == ((3, "page"),)
    assert found.place == "a.md, page 3"


def test_where_the_document_cannot_tell_the_pages_are_those_of_the_chunk() -> None:
    both = ((2, "page"), (3, "page"))
    (found,) = quoted([citation(pages=both)], "Bread?", "Yes.", by_words, lambda *_: None)
    assert found.quote is not None
    assert found.quote.pages == both


def test_without_an_answer_nothing_is_quoted() -> None:
    assert quoted([citation()], "Who?", "", by_words, no_pages) == (citation(),)
    assert quoted([], "Who?", "Somebody.", by_words, no_pages) == ()
