"""An answer beside the one without cache: their times, as measured, and the words in which they differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any

from ui.markup import escape

MOST_WORDS = 1500  # of each; longer answers are shown without marks
OTHER_PROMPT = (
    "The two read different passages, since the settings or the documents have changed between them, so their times "
    "tell nothing of the cache."
)
_WORD = re.compile(r"\S+|\s+")


def beside(answer: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    """As HTML. `plain` was made without cache; it may be under way still."""
    left, right = differences(str(answer["content"]), str(plain["content"]))
    told = [
        _side("With the cache", left, _seconds(answer)),
        _side("Without the cache", right, _seconds(plain)),
    ]
    return f'<div class="rc-compare">{"".join(told)}</div>{_verdict(answer, plain)}'


def differences(left: str, right: str) -> tuple[str, str]:
    """Both as HTML, with what the other lacks marked."""
    words, others = _WORD.findall(left), _WORD.findall(right)
    if max(len(words), len(others)) > 2 * MOST_WORDS:
        return escape(left), escape(right)
    told: tuple[list[str], list[str]] = ([], [])
    for kind, a, b, c, d in SequenceMatcher(None, words, others, autojunk=False).get_opcodes():
        for side, part in zip(told, ("".join(words[a:b]), "".join(others[c:d])), strict=True):
            text = escape(part)
            side.append(f"<mark>{text}</mark>" if kind != "equal" and part.strip() else text)
    return "".join(told[0]), "".join(told[1])


def alike(answer: Mapping[str, Any], plain: Mapping[str, Any]) -> bool:
    """Whether both read the same passages in the same order."""
    passages, tokens = zip(*(_read(one) for one in (answer, plain)), strict=True)
    return bool(passages[0] == passages[1] and tokens[0] == tokens[1])


def _read(message: Mapping[str, Any]) -> tuple[list[tuple[Any, ...]], Any]:
    passages = [tuple(one[name] for name in ("document_id", "start", "end")) for one in message.get("citations") or ()]
    return passages, (message.get("report") or {}).get("prompt_tokens")


def _side(title: str, html: str, seconds: float | None) -> str:
    time = "" if seconds is None else f'<span class="rc-compare-time">{seconds:.2f} s to the first word</span>'
    return f'<section><h4>{title}</h4>{time}<div class="rc-compare-text" dir="auto">{html}</div></section>'


def _seconds(message: Mapping[str, Any]) -> float | None:
    value = (message.get("report") or {}).get("ttft_s")
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _verdict(answer: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    ours, theirs = _seconds(answer), _seconds(plain)
    if ours is None or theirs is None:
        return ""
    same = str(answer["content"]) == str(plain["content"])
    words = "The answers are the same." if same else "Words that differ are marked."
    if not alike(answer, plain):
        return f'<p class="rc-hint">{OTHER_PROMPT} {words}</p>'
    ratio = theirs / ours
    if ratio >= 1.05:
        told = f"The first word came {ratio:.1f} times as soon with the cache."
    elif ratio <= 0.95:
        told = f"The first word came {1 / ratio:.1f} times as late with the cache."
    else:
        told = "The first words came equally soon."
    return f'<p class="rc-hint">{told} {words}</p>'
