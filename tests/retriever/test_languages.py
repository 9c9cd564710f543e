"""Languages, stems and compounds: what words in another form find, and what a hostile text may cost."""

from __future__ import annotations

import numpy as np
import pytest

from retriever import languages
from retriever.bm25 import build
from retriever.keyword_index import KeywordIndex
from retriever.languages import SMALL_WORDS, language_of, parts, stems
from retriever.memory_source import MemorySource
from retriever.words import MOST_ASKED, asked_terms, asked_words, wholes, words

GERMAN = "Der Antrag auf Urlaub wird von der Leitung geprüft und nicht ohne Grund abgelehnt."
ENGLISH = "The retry policy is what decides when a request of the client is sent again."


def index_of(*texts: str) -> KeywordIndex:
    source, index = MemorySource(2), KeywordIndex()
    for text in texts:  # one after the other, as documents are ingested
        source.add([text], np.eye(1, 2, dtype=np.float32))
        index.catch_up(source)
    return index


def found(index: KeywordIndex, question: str) -> list[int]:
    return sorted(index.search(question, 10)[0].tolist())


@pytest.mark.parametrize("name", SMALL_WORDS)
def test_the_small_words_are_as_texts_have_them(name: str) -> None:
    for word in SMALL_WORDS[name]:
        assert words(word) == [word]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (ENGLISH, "english"),
        (GERMAN, "german"),
        ("How do I go to a shop", "english"),
        ("I want to do a thing and I need to do it now", "english"),
        ("Call a plumber. Do laundry. Go to a bank.", None),
        ("4,120 3,377 18 % Q3 EMEA", None),
        ("Какой новый договор есть у них, и где он", "russian"),
        ("Jak se jmenuje ten, kdo to podle smlouvy platí, a kde je", "czech"),
        ("to the " + "SKU-4711 " * 200, None),  # two small words among figures
        ("", None),
    ],
)
def test_the_language_of_a_text(text: str, name: str | None) -> None:
    assert language_of(words(text)) == name


def test_other_forms_of_a_word_find_it() -> None:
    index = index_of(ENGLISH, GERMAN, "Новая политика и какой у неё срок, это не то, что было")
    assert found(index, "policies of retrying") == [1]
    assert found(index, "Anträge auf Urlaub") == [2]
    assert found(index, "новый") == [3]


def test_the_same_word_is_found_whatever_language_it_stands_in() -> None:
    for others in ([], [GERMAN], [GERMAN, "Do zítra se to podle smlouvy nebo jak to je"]):
        index = index_of(ENGLISH, *others)
        assert 1 in found(index, "Was ist die policy für Requests?")
        assert 1 in found(index, "policy")


def test_a_compound_is_asked_for_by_its_parts_where_the_index_does_not_have_it() -> None:
    index = index_of("Die Versicherung zahlt, wenn die Haftpflicht des Mieters nicht bestritten wird.", GERMAN)
    assert found(index, "Haftpflichtversicherung") == [1]
    assert found(index, "Urlaubsantrag") == [2]
    assert found(index, "Donaudampfschiff") == []
    assert found(index_of("Die Haftpflichtversicherung", GERMAN), "Haftpflichtversicherung") == [1]


def test_the_order_of_ingest_changes_nothing() -> None:
    texts = ["Die Haftpflichtversicherung ist nicht dabei und wird nicht bezahlt.", "Die Versicherung ist da.", GERMAN]
    for question in ("Versicherung", "Haftpflichtversicherung", "Urlaubsversicherung", "Leitung"):
        ways = [{texts[one - 1] for one in found(index_of(*texts), question)}]
        texts.reverse()
        ways.append({texts[one - 1] for one in found(index_of(*texts), question)})
        assert ways[0] == ways[1], question


def test_a_chunk_that_holds_all_forms_of_a_word_covers_it_once() -> None:
    index = index_of("running run runs and so on, in the end, of all that we know", GERMAN, ENGLISH)
    ids, covered = index.covered("running run", 5, None, np.arange(1, 4))
    assert ids.tolist() == [1, 2, 3]
    assert 0 < covered[0] <= 1
    assert covered[1:].tolist() == [0, 0]


def test_identifiers_and_numbers_are_kept_whole() -> None:
    assert wholes("max_retries E-204 v14-3.2 1,250 well-known") == ["maxretries", "e204", "v143.2", "1250"]
    assert wholes("C++, C#. a#b ## F # i++ c+++ C++1998") == ["c++", "c#", "i++"]
    assert wholes("使用C++编程 C#でプログラム C++는 C++17") == ["c++", "c#", "c++", "c++"]
    tongues = index_of("Written in C.", "Written in C#.", "Written in C++.", "Written in D.")
    assert [tongues.search(one, 4)[0][0] for one in ("C++", "c#", "D")] == [3, 2, 4]
    index = index_of("Set max_retries to 3.", "The retries are at max.", "Error E-204", "Error E-205 of 204")
    assert index.search("max_retries", 4)[0][0] == 1
    assert index.search("E-204", 4)[0][0] == 3


def test_stems_leave_names_of_parts_alone() -> None:
    assert stems(["policies", "t100s", "ids"], "english") == ["polici", "t100s", "id"]
    assert stems(["policies"], None) == ["policies"]
    assert parts("policies", "english") == [], "no compounds in English"


@pytest.mark.parametrize("word", ["Haftpflicht" * 3, "x" * 41, "h4ftpflichtversicherung", "kurz"])
def test_what_is_no_compound(word: str) -> None:
    known = {"haftpflicht", "kurz"}
    assert not [way for way in parts(word.casefold(), "german") if set(way) <= known]


def test_a_long_question_is_asked_by_its_start_and_its_end() -> None:
    text = " ".join(f"word{number}" for number in range(100_000))
    asked = asked_words(text)
    assert len(asked) == MOST_ASKED
    assert (asked[0], asked[-1]) == ("word0", "word99999")


def test_a_hostile_question_looks_few_things_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[int] = []

    def known(asked: object) -> list[bool]:
        looked_up.append(len(list(asked)))  # type: ignore[call-overload]  # a sequence
        return [True] * looked_up[-1]

    random = np.random.default_rng(0)
    letters = ["".join(random.choice(list("abcdefghij"), 40)) for _ in range(5000)]
    asked_terms(" ".join(letters), list(SMALL_WORDS), known)
    asked_terms(" ".join(letters[:20]), list(SMALL_WORDS), lambda asked: [False] * len(asked))
    assert sum(looked_up) == 0, "among so many words no compound is looked for"
    asked_terms(" ".join(letters[:20]), list(SMALL_WORDS), known)
    assert len(looked_up) == 2 and sum(looked_up) < 1000


def test_a_text_is_indexed_without_looking_at_others() -> None:
    """So that a text of long words costs what it is long."""
    long = " ".join("w" * 30 + str(number) for number in range(50))
    segment = build(np.arange(1, 3, dtype=np.int64), [f"der die das und ist nicht {long}", "a"])
    assert len(segment.hashes) <= 50 + 6 + 1 + 1


def test_stemmers_remember_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(languages._OF_THREAD, "english", None, raising=False)
    monkeypatch.delattr(languages._OF_THREAD, "english")
    stems(["policies"], "english")
    assert languages._OF_THREAD.english.maxCacheSize == languages.REMEMBERED
