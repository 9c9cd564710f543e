"""How often it is right to say that a passage supports a sentence of an answer, and that none does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import BenchOptions, option


@dataclass(frozen=True)
class SupportBenchOptions(BenchOptions):
    """How often it is right that a passage supports a sentence of an answer, on sentences labelled by hand."""

    of_settings = ()

    data: Path | None = option(
        None, "The folder chunking_eval; sentences about its corpora are left out without it.", kind=Path, told=False
    )
