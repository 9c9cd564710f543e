from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.words import STOP_WORDS, asked_words, wholes, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Quick-brown fox_42!", ["the", "quick", "brown", "fox", "42"]),
        ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Straße ﬁne", ["strasse", "fine"]),
        ("日本語", ["日", "本", "語", "日本", "本語"]),
        ("GPU日本x", ["gpu", "日", "本", "日本", "x"]),
        ("서울", ["서울"]),
        ("Москва, Ёлка", ["москва", "елка"]),
        ("हिन्दी में।", ["हिन्दी", "में"]),
        ("বাংলা, தமிழ்!", ["বাংলা", "தமிழ்"]),
        ("ไม่", ["ไ", "ม", "\u0e48", "ไม", "ม\u0e48"]),
        ("ދިވެހި ބަސް", ["ދިވެހި", "ބަސް"]),
        ("བོད་ཡིག་", ["བོད", "ཡིག"]),
        ("ᮞᮥᮔ᮪ᮓ ꯃꯤꯇꯩ, ᨅᨔ ᨕᨘᨁᨗ", ["ᮞᮥᮔ᮪ᮓ", "ꯃꯤꯇꯩ", "ᨅᨔ", "ᨕᨘᨁᨗ"]),
        ("𑄌𑄋𑄴𑄟𑄳𑄦 ߒߞߏ߫", ["𑄌𑄋𑄴𑄟𑄳𑄦", "ߒߞߏ߫"]),
        ("ܣܘܼܪܝܼܝܵܐ ܣܘܪܝܝܐ", ["ܣܘܪܝܝܐ"] * 2),
        ("ꦗꦮ ᬩᬮᬶ", ["ꦗ", "ꦮ", "ꦗꦮ", "ᬩ", "ᬮ", "ᬶ", "ᬩᬮ", "ᬮᬶ"]),
        ("сл҃нце x\u20d7 ❤\ufe0f 1\ufe0f\u20e3 葛\U000e0100城", ["слнце", "x", "1", "葛", "城", "葛城"]),
        ("שָׁלוֹם עֲלֵיכֶם־x", ["שלום", "עליכם", "x"]),
        ("مُحَمَّد", ["محمد"]),
        ("سُؤَال سوال", ["سؤال", "سوال"]),  # a hamza is a letter's own, but over or under an alef few write it
        ("أَحْمَد احمد إسلام آب ٱلله", ["احمد", "احمد", "اسلام", "اب", "الله"]),
        ("محـــمد مدرسة مدرسه على علي", ["محمد", "مدرسه", "مدرسه", "علي", "علي"]),
        ("کتاب كتاب یک يك", ["كتاب", "كتاب", "يك", "يك"]),
        ("٢٠٢٤ ۲۰۲۴ २०२४ ๒๐๒๔ ２０２４", ["2024"] * 5),
        ("Işık ISIK İSTANBUL ıstanbul", ["isik", "isik", "istanbul", "istanbul"]),
        ("Łódź lodz Ørsted ǿre Đoković", ["lodz", "lodz", "orsted", "ore", "dokovic"]),
        ("cœur Encyclopædia", ["coeur", "encyclopaedia"]),
        (
            "a hyphen-\nated well-\r\n  known word",
            ["a", "hyphenated", "hyphen", "ated", "wellknown", "well", "known", "word"],
        ),
        ("Größen\u2010\nwahn 3-\n4 -\na", ["grossenwahn", "grossen", "wahn", "3", "4", "a"]),
        ("Donau\xaddampf\xad\n schiff", ["donaudampfschiff"]),
        ("in\u200dvis\ufeffi\u2060ble", ["invisible"]),
        ("first_\u200bpart", ["first", "part"]),
        ("x" * 100_000 + "-", ["x" * 100_000]),
        ("", []),
        ("\0 \ud800 -- \u200b", []),
    ],
)
def test_words_are_folded(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_digits_of_all_scripts_are_those_of_ascii() -> None:
    for code in range(0x10000):
        if (digit := unicodedata.decimal(chr(code), None)) is not None:
            assert words(f"{chr(code)}x") == [f"{digit}x"], hex(code)


def test_marks_of_no_script_cut_a_word() -> None:
    for mark in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(mark)[0] == "M":
            whole = [unicodedata.normalize("NFKC", f"x{mark}y")]
            assert words(f"x{mark}y") in (whole, ["xy"], ["x", mark, "y"]), hex(ord(mark))


def test_an_identifier_is_found_by_the_digits_of_any_script() -> None:
    assert wholes("E-٢٠٤") == wholes("E-204") == ["e204"]


@given(st.text())
def test_any_text_has_words_that_have_themselves(text: str) -> None:
    """So that a question made of a chunk's own words finds it."""
    for word in words(text):
        assert word in words(word)


def test_stop_words_are_not_asked_for() -> None:
    assert asked_words("Who is the author of The Hobbit, and the author's age?") == ["author", "hobbit", "s", "age"]


def test_a_question_of_stop_words_alone_keeps_them() -> None:
    assert asked_words("to be or not to be") == ["to", "be", "or", "not"]
    assert {"to", "be", "or", "not"} <= STOP_WORDS
