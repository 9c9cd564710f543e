"""The bytes of single tokens: a character may be cut between several of them, and then no text is any one's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_BLANK = "\u2581"  # as SentencePiece writes it


class Vocabulary:
    """Of one tokenizer. Threads may share it."""

    def __init__(self, tokenizer: Tokenizer):
        self._piece: Callable[[int], str | None] = tokenizer.id_to_token
        self._added = {token: told.content for token, told in tokenizer.get_added_tokens_decoder().items()}
        decoder = b"" if tokenizer.decoder is None else tokenizer.decoder.__getstate__()
        self._byte_level = b'"ByteLevel"' in decoder
        self._of_pieces = b'"ByteFallback"' in decoder or _BLANK.encode() in decoder or b'"Metaspace"' in decoder

    def bytes_of(self, token: int) -> bytes:
        """As they stand in a text; of a control token, its name."""
        if token in self._added:
            return self._added[token].encode()
        piece = self._piece(token) or ""
        if self._byte_level:
            alphabet = _alphabet()
            # What is in no alphabet was put there by whoever made the vocabulary: it is its own text.
            return b"".join(bytes([alphabet[one]]) if one in alphabet else one.encode() for one in piece)
        if self._of_pieces:
            found = _BYTE.fullmatch(piece)
            return bytes([int(found[1], 16)]) if found else piece.replace(_BLANK, " ").encode()
        return piece.encode()


@cache
def _alphabet() -> dict[str, int]:
    """Of byte-level vocabularies: bytes that can be seen stand for themselves, the others, in their order, for the
    characters from 256 on.
    """
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(0x100 + place): byte for place, byte in enumerate(others)}
