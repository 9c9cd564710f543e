from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from app.answering.pieces import BROKEN, PATIENCE, Pieces, StopStrings
from app.models.chat_template import load_tokenizer
from app.prompt import PromptTemplate


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> PreTrainedTokenizerBase:
    return load_tokenizer(smollm2)


def read(pieces: Pieces, ids: Sequence[int]) -> list[str]:
    return [piece for piece in (*(pieces.add(token) for token in ids), pieces.end()) if piece]


@given(text=st.text())
def test_the_pieces_are_the_text_and_never_end_inside_a_character(
    template: PromptTemplate, tokenizer: PreTrainedTokenizerBase, text: str
) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    whole = template.decode(ids)
    shown = read(Pieces(template.decode), ids)
    if BROKEN not in whole:  # some characters of Unicode have no tokens in this model
        assert "".join(shown) == whole.strip()
        assert all(BROKEN not in piece for piece in shown)


@given(ids=st.lists(st.integers(3, 49151), max_size=60))
def test_any_tokens_give_what_they_say_together(template: PromptTemplate, ids: list[int]) -> None:
    whole = template.decode(ids)
    shown = "".join(read(Pieces(template.decode), ids))
    assert shown.replace(BROKEN, "").split() == whole.replace(BROKEN, "").split()


def test_a_character_of_several_tokens_comes_at_once(
    template: PromptTemplate, tokenizer: PreTrainedTokenizerBase
) -> None:
    ids = tokenizer.encode("a 🦔 b", add_special_tokens=False)
    assert any(template.decode([token]) == BROKEN for token in ids), "the test wants a character in parts"
    shown = read(Pieces(template.decode), ids)
    assert shown == ["a", " 🦔", " b"]


def test_a_character_that_is_never_finished_is_left_out(
    template: PromptTemplate, tokenizer: PreTrainedTokenizerBase
) -> None:
    ids = tokenizer.encode("yes 🦔", add_special_tokens=False)
    assert read(Pieces(template.decode), ids[:-1]) == ["yes"]


def test_blank_edges_are_left_out_and_inner_blanks_kept(
    template: PromptTemplate, tokenizer: PreTrainedTokenizerBase
) -> None:
    ids = tokenizer.encode("\n\n  One.\n\n\n Two. \n\n", add_special_tokens=False)
    assert "".join(read(Pieces(template.decode), ids)) == "One.\n\n\n Two."


def test_each_token_is_decoded_a_few_times_whatever_the_length() -> None:
    lengths: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        lengths.append(len(ids))
        return "".join(chr(97 + one % 26) for one in ids)

    shown = read(Pieces(decode), range(1000))
    assert "".join(shown) == decode(range(1000))
    assert max(lengths[:-1]) <= 2


def test_endless_parts_of_characters_are_not_kept_for_ever() -> None:
    lengths: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        lengths.append(len(ids))
        return BROKEN * len(ids)

    read(Pieces(decode), range(10 * PATIENCE))
    assert max(lengths) <= 2 * PATIENCE


def test_a_leading_space_that_a_decoder_drops_is_not_lost() -> None:
    words = [" one", " two", " three"]

    def decode(ids: Sequence[int]) -> str:
        return "".join(words[one] for one in ids).removeprefix(" ")

    assert "".join(read(Pieces(decode), [0, 1, 2])) == "one two three"


def test_a_space_behind_a_special_token_is_not_lost() -> None:
    words = [" one", " two", ""]

    def decode(ids: Sequence[int]) -> str:
        return "".join(words[one] for one in ids).removeprefix(" ")

    assert "".join(read(Pieces(decode), [2, 0, 2, 2, 1, 2, 0])) == "one two one"


def test_what_goes_on_with_a_text_keeps_its_blanks(
    template: PromptTemplate, tokenizer: PreTrainedTokenizerBase
) -> None:
    ids = tokenizer.encode("    return 🦔\n\n", add_special_tokens=False)
    pieces = Pieces(template.decode, behind=tokenizer.encode("def f(x):\n", add_special_tokens=False))
    text = "".join(read(pieces, ids))
    assert text == "    return 🦔\n\n"
    told = [(template.decode([token]), start) for token, start in zip(ids, pieces.starts, strict=True)]
    assert all(text[start:].startswith(own.rstrip(BROKEN)) for own, start in told), told
    assert {start for own, start in told if BROKEN in own} == {text.index(" 🦔")}


def test_behind_a_text_no_decoder_drops_a_space() -> None:
    words = [" one", " two", " three"]

    def decode(ids: Sequence[int]) -> str:
        return "".join(words[one] for one in ids).removeprefix(" ")

    pieces = Pieces(decode, behind=[0])
    assert read(pieces, [1, 2]) == [" two", " three"]
    assert pieces.starts == [0, 4]


@pytest.mark.parametrize("cut", [1, 2])
def test_a_character_that_a_text_ends_amid_is_finished(
    template: PromptTemplate, tokenizer: PreTrainedTokenizerBase, cut: int
) -> None:
    ids = tokenizer.encode("a 🦔 b", add_special_tokens=False)
    text = read(Pieces(template.decode, behind=ids[: 1 + cut]), ids[1 + cut :])
    assert text[-1] == " b"
    assert "".join(text).endswith("🦔 b")


def up_to_the_first(text: str, strings: Sequence[str]) -> str:
    """Letter by letter."""
    for end in range(len(text) + 1):
        found = [len(one) for one in strings if text[:end].endswith(one)]
        if found:
            return text[: end - max(found)]
    return text


SHORT = st.text("ab\n", max_size=24)
STRINGS = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=4)


@given(parts=st.lists(SHORT, max_size=8), strings=STRINGS)
def test_any_cut_into_pieces_stops_at_the_same_place(parts: list[str], strings: list[str]) -> None:
    stop, whole = StopStrings(strings), "".join(parts)
    shown = ""
    for place, part in enumerate(parts):
        shown += stop.add(part)
        expected = up_to_the_first("".join(parts[: place + 1]), strings)
        assert expected.startswith(shown), "nothing is out that may be none of it"
        assert len(expected) - len(shown) < max(map(len, strings), default=1)
    assert stop.found is (up_to_the_first(whole, strings) != whole)
    assert shown + stop.end() == up_to_the_first(whole, strings)


def letters(ids: Sequence[int]) -> str:
    """One of 26 for each token, and a special token."""
    return "".join(chr(97 + one) for one in ids if one < 26)


def pieces_of(stop: Sequence[str], ids: Sequence[int]) -> list[tuple[str, int]]:
    """Each piece with the tokens that are out by then."""
    pieces, shown = Pieces(letters, stop), list[tuple[str, int]]()
    for token in ids:
        if piece := pieces.add(token):
            shown.append((piece, pieces.tokens))
        if pieces.stopped:
            break
    shown.append((pieces.end(), pieces.tokens))
    return shown


def test_what_may_begin_a_stop_string_waits_with_its_tokens() -> None:
    assert pieces_of([], [0, 1, 30, 2]) == [("a", 1), ("b", 2), ("c", 4), ("", 4)]
    assert pieces_of(["bcx"], [0, 1, 2, 30, 3]) == [("a", 1), ("bcd", 5), ("", 5)]
    assert pieces_of(["bcd"], [0, 1, 2, 3, 4]) == [("a", 1), ("", 1)]
    assert pieces_of(["bcd"], [0, 1, 2]) == [("a", 1), ("bc", 3)], "it ends before it is decided"
    assert pieces_of(["a"], [0, 1]) == [("", 0)]


def test_a_token_that_begins_before_a_stop_string_is_one_of_its_text() -> None:
    words = ["one", " t", "wo. Th", "ree"]

    def decode(ids: Sequence[int]) -> str:
        return "".join(words[one] for one in ids)

    pieces = Pieces(decode, [". T"])
    assert [pieces.add(token) for token in range(3)] == ["one", " t", "wo"]
    assert (pieces.stopped, pieces.tokens) == (True, 3)
    later = Pieces(decode, ["hr"])
    assert "".join(later.add(token) for token in range(4)) + later.end() == "one two. T"
    assert (later.stopped, later.tokens) == (True, 3)


@given(ids=st.lists(st.integers(0, 30), max_size=30), stop=st.lists(st.text("abc", min_size=1, max_size=3), max_size=2))
def test_the_tokens_are_those_that_begin_in_the_text(ids: list[int], stop: list[str]) -> None:
    text, shown = up_to_the_first(letters(ids), stop), pieces_of(stop, ids)
    assert "".join(piece for piece, _ in shown) == text
    for place, (_, tokens) in enumerate(shown[:-1], start=1):
        assert letters(ids[:tokens]) == "".join(piece for piece, _ in shown[:place])
    assert letters(ids[: shown[-1][1]]) == text
    if text == letters(ids):
        assert shown[-1][1] == len(ids), "all of them, special ones too"


def test_blanks_may_stop_an_answer(template: PromptTemplate, tokenizer: PreTrainedTokenizerBase) -> None:
    """Although they are no part of a text that ends in them."""
    ids = tokenizer.encode("One.\n\nTwo.", add_special_tokens=False)
    pieces = Pieces(template.decode, ["\n\n"])
    shown = [pieces.add(token) for token in ids[:-2]]
    assert ("".join(shown), pieces.stopped) == ("One.", True)


def test_a_character_in_parts_is_of_all_its_tokens(
    template: PromptTemplate, tokenizer: PreTrainedTokenizerBase
) -> None:
    ids = tokenizer.encode("a 🦔 b", add_special_tokens=False)
    pieces, shown = Pieces(template.decode), list[tuple[str, int]]()
    for token in ids:
        if piece := pieces.add(token):
            shown.append((piece, pieces.tokens))
    assert shown == [("a", 1), (" 🦔", len(ids) - 1), (" b", len(ids))]
