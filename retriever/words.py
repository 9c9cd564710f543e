"""The words of a text, as they are indexed and as they are asked for."""

from __future__ import annotations

import re
import unicodedata

# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana and Han.
_RUN = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Vowel signs and the like, which stand amid words and are no letters to Python: of Indic scripts and of those of _RUN.
_SIGNS = (
    "\u0900-\u0963\u0981-\u09e3\u0a01-\u0a75\u0a81-\u0ae3\u0afa-\u0b63\u0b82-\u0bd7\u0c00-\u0c63\u0c81-\u0c83"
    "\u0cbc-\u0d4d\u0d57-\u0d63\u0d81-\u0df3\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ecd\u102b-\u103e\u1056-\u109d\u17b4-\u17d3"
)
_WORD = re.compile(f"(?:[^\\W_]|[{_SIGNS}])+")
_ASCII_WORD = re.compile("[a-z0-9]+")
_PIECE = re.compile(f"[{_RUN}]+|[^{_RUN}]+")
_IN_RUN = re.compile(f"[{_RUN}]")
# Characters without width, and with a soft hyphen the end of the line that it stands at.
_UNSEEN = re.compile(r"\u00ad(?:\r?\n[ \t]*+)?|[\u200c\u200d\u2060\ufeff]")
_BROKEN = re.compile(r"(?<![^\W\d_])([^\W\d_]++)[-\u2010]\r?\n[ \t]*+([^\W\d_]++)")
# Also the points of Hebrew and Arabic, which most texts leave out; vowel signs of other scripts stay.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
    "\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed]+"
)

# English words that stand in most texts and tell nothing of what is asked.
_STOP = (
    "a about after all also am an and any are as at be because been before being between both but by can could did do "
    "does doing during each for from further had has have having he her here hers him his how i if in into is it its "
    "itself just me more most my no nor not now of off on once only or other our out over own same she should so some "
    "such than that the their them then there these they this those through to too under until up very was we were "
    "what when where which while who whom whose why will with would you your"
)
STOP_WORDS = frozenset(_STOP.split())


def words(text: str) -> list[str]:
    """In order, folded: no case, no accents, no compatibility forms. Where a script has no spaces, a run of it becomes
    its characters and its pairs of neighbours. What a hyphen parts at the end of a line is there whole and in parts:
    the hyphen may be the word's own."""
    if "\n" in text:
        text = _BROKEN.sub(r"\1\2 \1 \2", text)
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    folded = unicodedata.normalize(
        "NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", _UNSEEN.sub("", text)))
    ).casefold()
    found = _WORD.findall(folded)
    return [piece for word in found for piece in _pieces(word)] if _IN_RUN.search(folded) else found


def asked_words(text: str) -> list[str]:
    """Distinct, without stop words unless there is nothing else."""
    distinct = list(dict.fromkeys(words(text)))
    return [word for word in distinct if word not in STOP_WORDS] or distinct


def _pieces(word: str) -> list[str]:
    pieces: list[str] = []
    for part in _PIECE.findall(word):
        if _IN_RUN.match(part):
            pieces += [*part, *(part[at : at + 2] for at in range(len(part) - 1))]
        else:
            pieces.append(part)
    return pieces
