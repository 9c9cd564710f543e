"""The sources of an answer as HTML."""

from __future__ import annotations

import re
from typing import Any

from ui.chat.answer import answered
from ui.chat.source import _named


def citation(number: int, source: str, page: int = 1) -> dict[str, Any]:
    return {"number": number, "source": source, "heading": [], "pages": [[page, "page"]], "quote": None}


def chips(*citations: dict[str, Any]) -> list[tuple[str, int]]:
    """What each says, and how many passages it has."""
    told = answered({"content": "So it is.", "citations": citations}, 0)
    found = re.findall(r'rc-chip" role="listitem"><bdi title="[^"]*">([^<]*)</bdi>(.*?)</span>', told)
    return [(place, buttons.count("<button")) for place, buttons in found]


def test_documents_of_one_name_have_chips_of_their_own() -> None:
    cited = [citation(1, "/a/2023/report.pdf"), citation(2, "/a/2024/report.pdf"), citation(3, "/a/2024/report.pdf")]
    assert chips(*cited) == [("2023/report.pdf, page 1", 1), ("2024/report.pdf, page 1", 2)]
    assert _named(cited, 1) == ("2024/report.pdf", "page 1")


def test_passages_of_one_place_share_a_chip() -> None:
    cited = [citation(1, "/a/r.pdf"), citation(2, "/a/r.pdf"), citation(3, "/a/r.pdf", 2)]
    assert chips(*cited) == [("r.pdf, page 1", 2), ("r.pdf, page 2", 1)]
