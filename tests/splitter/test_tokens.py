from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from app.models.chat_template import load_tokenizer
from splitter.base import FastTokens


def test_control_tokens_are_plain_characters(smollm2_tokens: FastTokens) -> None:
    assert smollm2_tokens.count("<|im_start|>") > 1
    assert smollm2_tokens.count("") == 0


def test_offsets_hold_the_text(smollm2_tokens: FastTokens) -> None:
    text = "Où est-il? 🏳️‍🌈 日本"
    offsets = smollm2_tokens.offsets(text)
    assert len(offsets) == smollm2_tokens.count(text)
    assert {place for start, end in offsets for place in range(start, end)} == set(range(len(text)))


def test_half_a_surrogate_pair_is_counted_like_any_character(smollm2_tokens: FastTokens) -> None:
    assert smollm2_tokens.count("a\ud800b") == smollm2_tokens.count("a\ufffdb")
    assert smollm2_tokens.offsets("a\ud800b")[-1][1] == 3


def added(tokens: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    tokens.add_tokens([AddedToken("<think>", special=False), AddedToken("<end>", special=False, lstrip=True)])
    return tokens


def unigram() -> PreTrainedTokenizerBase:
    """As SentencePiece makes them: a blank in front of each text, and control tokens in the vocabulary itself."""
    pieces = ["<unk>", "<think>", "▁", *"abcdehiknt<>\n", "▁a", "think", "▁the", "en"]
    bare = Tokenizer(models.Unigram([(piece, -float(len(pieces) - len(piece))) for piece in pieces], 0, False))
    bare.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    bare.decoder = decoders.Metaspace(prepend_scheme="first")
    return PreTrainedTokenizerFast(tokenizer_object=bare, unk_token="<unk>")


def bpe_with_a_blank_in_front(smollm2: Path) -> PreTrainedTokenizerBase:
    tokenizer = load_tokenizer(smollm2)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tokenizer


TEXTS = ["a<think>", "<think>", " the <end> a", "<think><think> the", "a <thi", "", "the\n<end>\n", "<end><think>a"]


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_added_tokens_are_the_ids_of_their_characters(smollm2: Path, text: str) -> None:
    for make in (load_tokenizer, bpe_with_a_blank_in_front):
        bare, with_more = FastTokens(make(smollm2)), FastTokens(added(make(smollm2)))
        assert with_more.ids(text) == bare.ids(text)
        assert with_more.offsets(text) == bare.offsets(text)
        assert with_more.count(text) == len(with_more.offsets(text))


@pytest.mark.parametrize("text", TEXTS)
def test_a_vocabulary_that_has_them_itself_is_no_way_around(text: str) -> None:
    tokenizer = added(unigram())
    control = {tokenizer.convert_tokens_to_ids(name) for name in ("<think>", "<end>")}
    tokens = FastTokens(tokenizer)
    assert control.isdisjoint(tokens.ids(text))
    assert len(tokens.ids(text)) == len(tokens.offsets(text))
    ends = [end for _, end in tokens.offsets(text)]
    assert ends == sorted(ends)
    assert "".join(tokenizer.decode(tokens.ids(text)).split()) == "".join(text.split())


def test_what_has_no_token_is_no_control(smollm2: Path) -> None:
    tokens = FastTokens(added(unigram()))
    assert tokens.ids("a Ω the")[1:-1].count(0) == 1


@given(st.text(st.sampled_from("a <>think/|\n▁"), max_size=40))
def test_texts_without_them_keep_their_ids(smollm2: Path, text: str) -> None:
    tokenizer = _with_more(smollm2)
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    if "<think>" not in text and "<end>" not in text:
        assert list(FastTokens(tokenizer).ids(text)) == ids


@cache
def _with_more(smollm2: Path) -> PreTrainedTokenizerBase:
    return added(load_tokenizer(smollm2))
