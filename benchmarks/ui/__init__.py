"""How long the page takes, as somebody in front of it sees it: its server, the page and a browser, each a process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import DATA, OF_SETTINGS, BenchOptions, option


@dataclass(frozen=True)
class UiBenchOptions(BenchOptions):
    """The chat in a real browser: from Enter to the first painted word, after a reload, and from a key to its echo."""

    of_settings = OF_SETTINGS

    data: Path | None = option(None, DATA, kind=Path, told=False)
    browser: Path | None = option(
        None, "Chromium, or a browser like it; else what is installed.", kind=Path, told=False
    )
    questions: int = option(20, "Asked one after the other, each in a new conversation.", least=1)
    messages: int = option(500, "Of the long conversation.", least=2)
    reloads: int = option(20, "Of each conversation.", least=1)
    keys: int = option(60, "Pressed in each conversation.", least=1)
    answer_tokens: int = option(24, "Longest answer.", least=1)
