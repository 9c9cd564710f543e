from __future__ import annotations

from splitter.tokens import FastTokens


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
