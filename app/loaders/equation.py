"""Equations of office files on one line, as people type them: `x^2/(1+y)`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MATH = (
    "http://schemas.openxmlformats.org/officeDocument/2006/math",
    "http://purl.oclc.org/ooxml/officeDocument/math",  # of strict files
)
LEFT_OUT = frozenset({"del", "moveFrom", "Fallback"})  # of the revisions and alternatives within
SIGNS = {"sup": "^", "sub": "_", "lim": "_", "den": "/", "num": ""}  # without them 10 to the 6th reads as 106
SEPARATORS = {"m": "; ", "mr": ", ", "eqArr": "; "}


def equation(element: Any) -> str:
    """What an element of ElementTree or lxml says: an oMath, or any part of one."""
    tag = _tag(element)
    if tag == "t":
        return element.text or ""
    if tag.endswith("Pr") or tag in LEFT_OUT:
        return ""
    parts = [part for child in element if (part := equation(child))]
    if tag == "d":
        return "".join(_delimited(element, parts))
    whole = SEPARATORS.get(tag, "").join(parts)
    if tag in SIGNS:
        return SIGNS[tag] + _as_one(whole) if whole else ""
    if tag == "deg":
        return _as_one(whole) if whole else ""
    if tag == "fName":
        return f"{whole} "
    if tag == "rad":
        base = _as_one(parts.pop()) if parts else ""
        return f"{''.join(parts)}√{base}"
    return _character(element, "chr", "∫") + whole if tag == "nary" else whole


def _delimited(element: Any, parts: list[str]) -> Iterator[str]:
    yield _character(element, "begChr", "(")
    yield _character(element, "sepChr", "|").join(parts)
    yield _character(element, "endChr", ")")


def _character(element: Any, kind: str, default: str) -> str:
    """That of the element's properties, which stand first; "" where they say that there is none."""
    found = element.find(f"{{*}}{_tag(element)}Pr/{{*}}{kind}")
    return default if found is None else next(iter(found.attrib.values()), "")[:1]


def _as_one(text: str) -> str:
    return text if len(text) == 1 or text.isalnum() else f"({text})"


def _tag(element: Any) -> str:
    """The local name; "" of a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
