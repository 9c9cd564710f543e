"""The words of a text, as they are indexed and as they are asked for."""

from __future__ import annotations

import re
import unicodedata

# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana and Han.
_RUN = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(r"[^\W_]+")
_PIECE = re.compile(f"[{_RUN}]+|[^{_RUN}]+")
_IN_RUN = re.compile(f"[{_RUN}]")
# Characters without width, and with a soft hyphen the end of the line that it stands at.
_UNSEEN = re.compile(r"\u00ad(?:\r?\n[ \t]*+)?|[\u200c\u200d\u2060\ufeff]")
_BROKEN = re.compile(r"(?<![^\W\d_])([^\W\d_]++)[-\u2010]\r?\n[ \t]*+([^\W\d_]++)")
_ACCENTS = re.compile("[\u0300-\u036f]+")  # alone, so that vowel signs of other scripts stay

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
        return _WORD.findall(text.lower())
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
