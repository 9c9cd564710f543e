"""What documents are called: the same letters are one name, in whatever form of Unicode a system sends them."""

from __future__ import annotations

from typing import Literal
from unicodedata import normalize

FORMS: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")


def composed(name: str) -> str:
    """é as one sign, and not as e and its accent."""
    return normalize("NFC", name)


def forms(name: str) -> tuple[str, ...]:
    """What it may be called, as it is now first: names were once kept as they came."""
    return tuple(dict.fromkeys(normalize(form, name) for form in FORMS))
