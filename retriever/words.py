"""The words of a text, as they are indexed and as they are asked for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Literal

from retriever.languages import SMALL_WORDS, language_of, parts, stems

# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, Tai Le, New Tai Lue, Tai Tham, Balinese, Javanese,
# Tai Viet, kana and Han.
_RUN = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa60-\uaadf"
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_WORD = re.compile("[a-z0-9]+")
_PIECE = re.compile(f"[{_RUN}]+|[^{_RUN}]+")
_IN_RUN = re.compile(f"[{_RUN}]")
# Characters without width, such as those that choose a form of the one before them, and with a soft hyphen the end of
# the line that it stands at.
_UNSEEN = re.compile(
    r"\u00ad(?:\r?\n[ \t]*+)?|[\u180b-\u180d\u180f\u200c\u200d\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]"
)
_BROKEN = re.compile(r"(?<![^\W\d_])([^\W\d_]++)[-\u2010]\r?\n[ \t]*+([^\W\d_]++)")
# What may be a run of combining marks, longer than any that a text needs; two halfwidth signs of kana are letters to
# Python, and marks once they are decomposed.
MOST_MARKS = 30
_MARKS = re.compile(f"(?:[^\\w\x00-\x7f]|[\uff9e\uff9f]){{{MOST_MARKS + 1},}}")
_JOINER = "\u034f"  # no mark, unseen: marks before and behind it are not brought into one order
# Also the points of Hebrew, Arabic and Syriac, which most texts leave out, and the tatweel, which lengthens a word;
# vowel signs of other scripts stay, and so does the breve of the Cyrillic short i, a letter of its own.
_ACCENTS = re.compile(
    "(?<![\u0418\u0438])\u0306|[\u0300-\u0305\u0307-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0730-\u074a"
    "\u0897-\u089f\u08ca-\u08e1\u08e3-\u08ff\u135d-\u135f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufb1e\ufe20-\ufe2f"
    "\U00010efa-\U00010eff]+"
)
# Letters that people write in one way or another, and no normal form makes one: with a stroke, a ligature or without a
# dot, the alefs, yehs, kafs and hehs of Arabic and Persian; and the digits of all scripts, told by their zeros.
_SPELLINGS = str.maketrans(
    "łøđħŧı\u0622\u0623\u0625\u0671\u0649\u06cc\u06a9\u0629\u06c0\u06c1",
    "lodhti\u0627\u0627\u0627\u0627\u064a\u064a\u0643\u0647\u0647\u0647",
) | str.maketrans({"œ": "oe", "æ": "ae"})
_ZEROS = (
    "\u0660\u06f0\u07c0\u0966\u09e6\u0a66\u0ae6\u0b66\u0be6\u0c66\u0ce6\u0d66\u0de6\u0e50\u0ed0\u0f20\u1040\u1090"
    "\u17e0\u1810\u1946\u19d0\u1a80\u1a90\u1b50\u1bb0\u1c40\u1c50\ua620\ua8d0\ua900\ua9d0\ua9f0\uaa50\uabf0"
)
DIGITS = {ord(zero) + digit: str(digit) for zero in _ZEROS for digit in range(10)}
_SPELLINGS |= DIGITS
_ODD = re.compile(f"[{_RUN}{''.join(map(chr, _SPELLINGS))}]")

# English words that stand in most texts and tell nothing of what is asked.
_STOP = (
    "a about after all also am an and any are as at be because been before being between both but by can could did do "
    "does doing during each for from further had has have having he her here hers him his how i if in into is it its "
    "itself just me more most my no nor not now of off on once only or other our out over own same she should so some "
    "such than that the their them then there these they this those through to too under until up very was we were "
    "what when where which while who whom whose why will with would you your"
)
STOP_WORDS = frozenset(_STOP.split())
# Numbers and identifiers that signs hold together: max_retries, E-204, 14-3.2, 1,250.
_JOINED = re.compile(r"(?<![^\W_])[^\W_]++(?:[_\-./:,][^\W_]++)++")
_SIGNS_OF_JOINED = re.compile(r"[_\-/,]")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_LETTERS = re.compile(r"(?<![A-Za-z])[A-Za-z]{3,64}+(?![A-Za-z])")
# Languages and the like that differ in signs alone: C++ (with its year behind it or not), C#.
_SIGNED = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9]{0,15}(?:\+\+(?=(?:\d\d)?(?![A-Za-z0-9_+#]))|#(?![A-Za-z0-9_+#]))"
)
_LONGEST_JOINED = 64
MOST_ASKED = 512  # distinct words of a question, half from its start and half from its end
MOST_SPLIT = 32  # words of a question that may be compounds
Known = Callable[[Sequence[str]], Sequence[bool]]  # which of some stems are in the index
Term = tuple[str, ...]  # what stands for one thing that is asked for


@dataclass(frozen=True)
class TextTerms:
    """What a text is found by."""

    language: str | None
    stems: Sequence[str]  # of its words, in order
    more: Sequence[str]  # identifiers as a whole, and parts of them: they find, and make no text longer


def _marks(first: int, stop: int) -> str:
    """Vowel signs and the like, which stand amid words and are no letters to Python: as ranges of a pattern."""
    found = groupby(map(chr, range(first, stop)), lambda sign: unicodedata.category(sign)[0] == "M")
    runs = (list(signs) for are_marks, signs in found if are_marks)
    return "".join(f"{run[0]}-{run[-1]}" for run in runs)


@lru_cache(maxsize=1)
def _word() -> re.Pattern[str]:
    """Made when a text first asks for it: it looks at 126,000 characters. No text has underscores."""
    # Beyond 16 bits, ranges are compared one by one: only with what may be in them.
    beyond = f"(?=[\U00010000-\U0001efff])[{_marks(0x10000, 0x1F000)}]"
    return re.compile(f"(?:[\\w{_marks(0x300, 0x10000)}]+|{beyond})+")


def words(text: str) -> list[str]:
    """In order, folded: no case, no accents, no compatibility forms, one spelling and ASCII's digits. Where a script
    has no spaces, a run of it becomes its characters and its pairs of neighbours. What a hyphen parts at the end of a
    line is there whole and in parts: the hyphen may be the word's own."""
    if "\n" in text:
        text = _BROKEN.sub(r"\1\2 \1 \2", text)
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    folded = normal_form("NFC", _ACCENTS.sub("", normal_form("NFKD", _UNSEEN.sub("", text)))).casefold()
    folded = folded.replace("_", " ")
    if not _ODD.search(folded):
        return _word().findall(folded)
    found = _word().findall(folded.translate(_SPELLINGS))
    return [piece for word in found for piece in _pieces(word)]


def normal_form(form: Literal["NFC", "NFKD"], text: str) -> str:
    """In linear time: Python sorts a run of combining marks in the square of its length, and no other thread runs
    meanwhile. So a joiner stands behind each 30 of them, as in the stream-safe text of Unicode (UAX #15).
    """
    return unicodedata.normalize(form, _MARKS.sub(_with_joiners, text))


def _with_joiners(run: re.Match[str]) -> str:
    written: list[str] = []
    marks = 0
    for char in run[0]:
        parts_of_it = unicodedata.normalize("NFKD", char)
        marks = marks + len(parts_of_it) if unicodedata.combining(parts_of_it[0]) else 0
        if marks > MOST_MARKS:
            written.append(_JOINER)
            marks = len(parts_of_it)
        written.append(char)
    return "".join(written)


def terms(text: str) -> TextTerms:
    found = words(text)
    language = language_of(found)
    return TextTerms(language, stems(found, language), wholes(text))


def wholes(text: str) -> list[str]:
    """Identifiers and numbers that `words` cuts, without the signs that held them together; names with the signs that
    end them; and the parts of those that capitals hold together.
    """
    found = [
        _SIGNS_OF_JOINED.sub("", one).casefold().translate(_SPELLINGS)
        for one in _JOINED.findall(text)
        if len(one) <= _LONGEST_JOINED and ("_" in one or any(map(str.isdigit, one)))
    ]
    if "#" in text or "++" in text:
        found += (one.casefold() for one in _SIGNED.findall(text))
    if _HUMP.search(text):
        for one in _LETTERS.findall(text):
            humps = _HUMP.sub(" ", one).casefold().split()
            found += humps if len(humps) > 1 else []
    return found


def asked_words(text: str) -> list[str]:
    """Distinct, without stop words unless there is nothing else."""
    found = words(text)
    stop = STOP_WORDS | SMALL_WORDS.get(language_of(found) or "", frozenset())
    distinct = list(dict.fromkeys(found))
    telling = [word for word in distinct if word not in stop] or distinct
    half = MOST_ASKED // 2
    return telling if len(telling) <= MOST_ASKED else [*telling[:half], *telling[-half:]]


def asked_terms(text: str, languages: Collection[str], known: Known) -> list[Term]:
    """For each thing that is asked for, the terms that stand for it: a word, and its stem in each of the `languages` of
    the index, since a text of one may hold words of another, or be taken for another. A compound that the index does
    not have is asked for by its parts.
    """
    asked = asked_words(text)
    stemmed = [stems(asked, name) for name in sorted(languages)]
    found = [tuple(dict.fromkeys(forms)) for forms in zip(*stemmed, asked, strict=True)]
    if len(found) <= MOST_SPLIT:
        found = list(_split(asked, found, sorted(languages), known))
    return list(dict.fromkeys([*found, *((whole,) for whole in wholes(text)[:MOST_ASKED])]))


def _split(asked: Sequence[str], terms: Sequence[Term], languages: Sequence[str], known: Known) -> Iterator[Term]:
    there = dict.fromkeys(form for forms in terms for form in forms)
    there = dict(zip(there, known(list(there)), strict=True))
    ways = {
        word: [way for name in languages for way in parts(word, name)]
        for word, forms in zip(asked, terms, strict=True)
        if not any(there[form] for form in forms)
    }
    stand_ins = list(dict.fromkeys(stem for of_word in ways.values() for way in of_word for stem in way))
    alone = dict(zip(stand_ins, known(stand_ins), strict=True))
    for word, forms in zip(asked, terms, strict=True):
        way = next((way for way in ways.get(word, ()) if all(alone[stem] for stem in way)), None)
        yield from [forms] if way is None else [(stem,) for stem in way]


def _pieces(word: str) -> list[str]:
    if not _IN_RUN.search(word):
        return [word]
    pieces: list[str] = []
    for part in _PIECE.findall(word):
        if _IN_RUN.match(part):
            pieces += [*part, *(part[at : at + 2] for at in range(len(part) - 1))]
        else:
            pieces.append(part)
    return pieces


def language_mark(language: str | None) -> tuple[str, ...]:
    """A term of every text in that language, which no text has by itself: an index knows its languages by it."""
    return () if language is None else (f"\0{language}",)
