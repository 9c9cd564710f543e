"""The bytes of the tokens of a text are the bytes of the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from app.models.chat_template import load_tokenizer
from app.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def byte_level(smollm2: Path) -> Tokenizer:
    found: Tokenizer = load_tokenizer(smollm2).backend_tokenizer
    return found


@pytest.fixture(scope="module")
def of_pieces() -> Tokenizer:
    """As SentencePiece's: blanks have a sign, and what is no piece is told by its bytes."""
    pieces = {"<unk>": 0, "\u2581a": 1, "b": 2, "\u2581": 3, "\u00e9": 4} | {
        f"<0x{byte:02X}>": 5 + byte for byte in range(256)
    }
    made = Tokenizer(models.BPE(pieces, [], unk_token="<unk>", byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return made


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_byte_level_tokens_add_up_to_their_text(byte_level: Tokenizer, text: str) -> None:
    vocabulary = Vocabulary(byte_level)
    ids = byte_level.encode(text, add_special_tokens=False).ids
    assume(byte_level.decode(ids, skip_special_tokens=False) == text)  # it has no tokens for some bytes
    assert b"".join(map(vocabulary.bytes_of, ids)) == text.encode()


@pytest.mark.parametrize("text", ["b", " b", "b b", "é", "日", "😀 b"])
def test_pieces_add_up_to_their_text(of_pieces: Tokenizer, text: str) -> None:
    vocabulary = Vocabulary(of_pieces)
    ids = of_pieces.encode(text, add_special_tokens=False).ids
    assert b"".join(map(vocabulary.bytes_of, ids)) == text.encode()


def test_a_control_token_is_told_by_its_name(byte_level: Tokenizer) -> None:
    assert Vocabulary(byte_level).bytes_of(byte_level.token_to_id("<|im_end|>")) == b"<|im_end|>"
    assert Vocabulary(byte_level).bytes_of(10**6) == b""


def test_tokens_of_a_tokenizer_without_a_decoder_are_their_names() -> None:
    vocabulary = Vocabulary(Tokenizer(models.WordLevel({"a": 0, "\u00e9": 1}, unk_token="a")))
    assert [vocabulary.bytes_of(token) for token in range(2)] == [b"a", "\u00e9".encode()]
