from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from app.answering.stream import BROKEN, PATIENCE, Pieces
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
