"""How long commands take from their start to their end, or to the first word of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.choices import some_of
from benchmarks.options import BenchOptions, option

QUESTION = "Who designed the lighthouse of Port Ferris?"
COMMANDS: Mapping[str, Sequence[str]] = {
    "ls": ("ls",),
    "show": ("show", "1"),
    "cache stats": ("cache", "stats"),
    "ask": ("ask", QUESTION, "--max-tokens", "8", "--no-show-report"),
}


@dataclass(frozen=True)
class StartBenchOptions(BenchOptions):
    """From Enter to the end of a command, or to the first word of an answer."""

    commands: tuple[str, ...] = option(",".join(COMMANDS), "With commas between them.", read=some_of(*COMMANDS))
    rounds: int = option(5, "Rounds, each with every command once.", least=1)
