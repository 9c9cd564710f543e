"""What clients are told of an answer. Where the server keeps things is for whoever reads its log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.server.events import sound

# Paths and URLs, from the first of a line to the last: some have blanks. Looked for once in a word, however long it is.
_PLACES = re.compile(r"(?<!\S)\S*[/\\](?:.*[/\\])?\S*")


def placeless(told: str) -> str:
    return _PLACES.sub("…", told)


def redacted_notes(notes: Sequence[str]) -> list[str]:
    return [placeless(sound(one)) for one in notes]


def redacted_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Its incidents may be those of another client's prompt, whose entries and buckets are nobody else's."""
    return {**sound(report), "incidents": redacted_notes(report.get("incidents", ()))}
