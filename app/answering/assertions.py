"""What a sentence asserts, as far as words tell it: telling words, numbers, names, and whether it denies something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retriever.languages import SMALL_WORDS, stems
from retriever.words import DIGITS, STOP_WORDS, words

_UNITS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_EINER = (
    "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn "
    "neunzehn"
)
_ZEHNER = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
# Of all scripts as ASCII has them, one character for one: fullwidth ones too, and what parts numbers in Arabic.
_DIGITS = DIGITS | {0xFF10 + digit: str(digit) for digit in range(10)} | {0x066B: ".", 0x066C: ","}
_NUMBER = re.compile(r"\d+(?:[.,:'’]\d+)*")
_THOUSANDS = re.compile(r"[.,'’](?=\d{3}(?!\d))")
_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_DENY = (
    "not no never none nobody nothing neither nor without cannot hardly nicht kein keine keinen keinem keiner keines "
    "nie niemals niemand nichts ohne weder pas jamais aucun aucune sans rien nunca jamás ningún ninguna sin nada non "
    "mai nessuno senza niet geen nooit zonder inte ingen aldrig ikke не нет ни никогда без لا ليس لم لن غير بدون"
)
_DENIALS = frozenset(_DENY.split())
_DENIED_PART = re.compile(r"n['’]t\b|[不没沒無无未非]")
_FOREIGN = ("german",)  # languages that write each noun with a capital: there it makes no name
LONGEST = 4000  # characters of a sentence


def _spelt() -> dict[str, str]:
    units = dict(zip(_UNITS.split(), map(str, range(2, 20)), strict=True))
    einer = dict(zip(_EINER.split(), map(str, range(2, 20)), strict=True))
    found = {**units, **einer}
    for place, (ten, zehn) in enumerate(zip(_TENS.split(), _ZEHNER.split(), strict=True), 2):
        found |= {ten: f"{place}0", zehn: f"{place}0", f"{ten}-one": f"{place}1", f"einund{zehn}": f"{place}1"}
        found |= {f"{ten}-{unit}": f"{place}{value}" for unit, value in units.items() if len(value) == 1}
        found |= {f"{unit}und{zehn}": f"{place}{value}" for unit, value in einer.items() if len(value) == 1}
    return found


SPELT = _spelt()


@dataclass(frozen=True)
class Assertion:
    """`stems` are of its telling words, those of `names` among them."""

    stems: frozenset[str]
    numbers: frozenset[str]
    names: frozenset[str]
    denies: bool


def assertion(sentence: str, language: str | None, longest: int = LONGEST) -> Assertion:
    text = sentence[:longest].translate(_DIGITS)
    spelt = [(found.start(), found[0]) for found in _WORD.finditer(text)]
    numbers = {_plain(found) for found in _NUMBER.findall(text)}
    numbers |= {SPELT[word.casefold()] for _, word in spelt if word.casefold() in SPELT}
    denies = any(word.casefold() in _DENIALS for _, word in spelt) or bool(_DENIED_PART.search(text))
    named = {} if language in _FOREIGN else dict.fromkeys(_names(text, spelt))
    return Assertion(_telling(text, language), frozenset(numbers), _telling(" ".join(named), language), denies)


def _plain(number: str) -> str:
    return _THOUSANDS.sub("", number).replace(",", ".")


def _names(text: str, spelt: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Words with a capital that no beginning of a sentence explains: there, those that another capital follows."""
    for place, (at, word) in enumerate(spelt):
        if not word[0].isupper() or word.casefold() in STOP_WORDS:
            continue
        begins = place == 0 and not text[:at].strip("*_ \"'“„«(")
        following = spelt[place + 1][1] if begins and place + 1 < len(spelt) else ""
        if not begins or following[:1].isupper():
            yield word


def _telling(text: str, language: str | None) -> frozenset[str]:
    small = STOP_WORDS | SMALL_WORDS.get(language or "", frozenset())
    kept = [word for word in words(text) if word not in small and word not in SPELT and not word.isdecimal()]
    return frozenset(stems(kept, language))
