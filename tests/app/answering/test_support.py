"""Which passage says a sentence of an answer, and what counts against that."""

from __future__ import annotations

import pytest

from app.answering import Answer, Citation, SupportedSentence
from app.answering.answerer import with_support
from app.answering.assertions import SPELT, assertion
from app.answering.support import LEAST, MOST_WINDOWS, Passage, _shares, supported
from ragcache.report import Report

ROCK = Passage("The rock is low. Gulls nest on it in May.", "Varn Skerry")
TOWER = Passage(
    "The tower was designed by Margaret Aldous, who had never built anything at sea. It is 38 metres high. "
    "Three keepers lived there, and no boat could land for 71 days."
)
TABLE = Passage("room | beds | price\nblue room | 2 | 80 euros\ntower room | 1 | 65 euros")


def one(sentence: str, *passages: Passage) -> SupportedSentence:
    (found,) = supported(sentence, passages or (ROCK, TOWER, TABLE))
    return found


@pytest.mark.parametrize(
    ("sentence", "citation"),
    [
        ("Margaret Aldous designed the tower.", 1),
        ("It is thirty-eight metres high.", 1),
        ("No boat could land for seventy-one days.", 1),
        ("Gulls nest on the rock.", 0),
        ("Gulls nest on the rock of Varn Skerry.", 0),
        ("The blue room costs 80 euros.", 2),
    ],
)
def test_the_passage_that_says_it_is_told(sentence: str, citation: int) -> None:
    found = one(sentence)
    assert (found.citation, sentence[found.start : found.end]) == (citation, sentence)
    assert LEAST <= found.share <= 1


@pytest.mark.parametrize(
    "sentence",
    [
        "Peter Aldous designed the tower.",
        "The tower was designed by Robert Stevenson.",
        "It is 39 metres high.",
        "Boats could land for 17 days.",
        "Margaret Aldous never designed the tower.",
        "Gulls do not nest on the rock.",
        "The blue room costs 65 euros.",
        "The museum sells postcards of whales.",
    ],
)
def test_another_number_or_name_and_a_denial_count_against_it(sentence: str) -> None:
    found = one(sentence)
    assert found.citation is None
    assert 0 <= found.share < LEAST


def test_a_denial_is_that_of_its_own_clause() -> None:
    said = Passage("Keepers baked bread twice a week, and were forbidden to whistle, for reasons nobody could explain.")
    assert one("Keepers baked bread twice a week.", said).citation == 0
    assert one("Keepers never baked bread twice a week.", said).citation is None


def test_german_and_chinese_are_compared_by_their_own_words() -> None:
    ferry = Passage("Die Fähre wurde im Jahr 1968 in Emden gebaut.")
    assert one("Die Fähre wurde 1968 gebaut.", ferry).citation == 0
    assert one("Die Fähre wurde 1986 gebaut.", ferry).citation is None
    assert one("茶馆建于1923年。", Passage("青山茶馆建于1923年，位于湖的东岸。")).citation == 0


def test_the_same_answer_has_the_same_support() -> None:
    answer = "Margaret Aldous designed the tower. It is 39 metres high. Why? Gulls nest on the rock."
    assert supported(answer, (ROCK, TOWER)) == supported(answer, (ROCK, TOWER))
    assert [found.citation for found in supported(answer, (ROCK, TOWER))] == [1, None, 0]


def test_without_passages_nothing_has_support() -> None:
    assert [found.citation for found in supported("It is high. It is low.", ())] == [None, None]
    assert supported("", (ROCK,)) == ()


def test_a_passage_behind_long_ones_is_looked_at() -> None:
    long = [Passage(" ".join(f"Bird {row} of flock {flock} sang." for row in range(400))) for flock in range(6)]
    assert one("Margaret Aldous designed the tower.", *long, TOWER).citation == 6
    assert one("Bird 20 of flock 5 sang.", *long, TOWER).citation == 5


def test_what_short_passages_leave_goes_to_long_ones() -> None:
    assert _shares([3, 2000, 0, 5, 2000]) == [3, 508, 0, 5, 508]
    assert _shares([2000, 7]) == [MOST_WINDOWS - 7, 7]
    assert sum(_shares([9] * 2000)) == MOST_WINDOWS
    assert _shares([]) == []


@pytest.mark.parametrize("piece", ["tower ", "Tower. ", "a, b, no ", "1 ", "中", "  \t", "and not , "])
def test_hostile_texts_end(piece: str) -> None:
    """Each within the tests' timeout, which quadratic work would not be."""
    text = piece * (200_000 // len(piece))
    found = supported(text, [Passage(text)] * (MOST_WINDOWS // 8))
    assert all(0 <= each.share <= 1 for each in found)


def test_numbers_are_read_as_they_are_written() -> None:
    said = assertion("It has 1,250 seats, 1.250 more, 3.5 or 3,5 metres, forty-three rooms and dreiundvierzig.", None)
    assert said.numbers == {"1250", "3.5", "43"}
    assert SPELT["einundzwanzig"] == SPELT["twenty-one"] == "21"
    assert "one" not in SPELT, "it is a pronoun too"


@pytest.mark.parametrize("written", ["١٬٢٥٠ و ٣٫٥", "۱٬۲۵۰ و ۳٫۵", "१,२५० और ३.५", "１,２５０、３.５"])
def test_numbers_are_the_same_in_all_scripts(written: str) -> None:
    assert assertion(written, None).numbers == {"1250", "3.5"}
    (english,) = supported("It has 1,250 seats and is 3.5 metres high.", [Passage(f"Seats {written}.")])
    assert english.share == one("It has 1,250 seats and is 3.5 metres high.", Passage("Seats 1,250, 3.5.")).share


def test_a_capital_at_the_beginning_makes_no_name() -> None:
    assert assertion("Towers stand in Tarrow.", "english").names == {"tarrow"}
    assert assertion("Die Fähre fährt.", "german").names == frozenset()


def test_the_support_of_an_answer_names_its_citations() -> None:
    def cited(number: int, text: str) -> Citation:
        return Citation(1, number, 0, "/a.md", "Varn Skerry", (), 0, len(text), text, (), (), 0.5, number)

    text = "Gulls nest on the rock of Varn Skerry. It is made of cheese."
    answer = Answer("What is it?", text, (cited(1, TOWER.text), cited(2, ROCK.text)), Report("", 0, 0, 0))
    told = with_support(answer)
    assert [(text[found.start : found.end], found.citation) for found in told.support] == [
        ("Gulls nest on the rock of Varn Skerry.", 1),
        ("It is made of cheese.", None),
    ]
    assert told.to_dict()["support"][0]["citation"] == 1
    assert with_support(Answer("?", text, (), Report("", 0, 0, 0))).support == ()
