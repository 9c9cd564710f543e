"""How alike two answers are as texts."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


def words(text: str) -> list[str]:
    return text.lower().translate(PUNCTUATION).split()


def rouge_l(answer: str, reference: str) -> float:
    """F-measure of the longest common subsequence of words; two answers without words are the same."""
    ours, theirs = words(answer), words(reference)
    if not ours or not theirs:
        return float(ours == theirs)
    common = _common(ours, theirs)
    return 2 * common / (len(ours) + len(theirs))


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(right) + 1)
    for one in left:
        before = row
        row = [0]
        for place, other in enumerate(right):
            row.append(before[place] + 1 if one == other else max(before[place + 1], row[place]))
    return row[-1]


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """SQuAD's: shared words, without articles, against the best of the right answers."""
    assert golds
    return max(_f1(_squad_words(answer), _squad_words(gold)) for gold in golds)


def _squad_words(text: str) -> list[str]:
    return ARTICLES.sub(" ", " ".join(words(text))).split()


def _f1(ours: list[str], theirs: list[str]) -> float:
    if not ours or not theirs:
        return float(ours == theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))
