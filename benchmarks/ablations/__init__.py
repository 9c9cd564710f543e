"""Cache-Craft's ablations (section 6): what each of its parts is worth, by how far answers are off."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from benchmarks.choices import one_of, parse_numbers, parse_positive, some_of
from benchmarks.options import CHUNK_TOKENS, SEED, BenchOptions, option
from benchmarks.quality import ORDERS

COMPONENTS, ALPHA, COUNT, SIZE, POSITIONS = ABLATIONS = ("components", "alpha", "count", "size", "positions")


@dataclass(frozen=True)
class AblationsBenchOptions(BenchOptions):
    """What each part of Cache-Craft is worth: its repair without beta, CCI or focus, and K left at old positions."""

    limit: int = option(24, "Questions, at random.", least=1)
    ablations: tuple[str, ...] = option(
        ",".join(ABLATIONS),
        "Which of them: parts of the repair (components), how much of it (alpha), chunks of a prompt (count), their "
        "length (size), and K left at the positions of its capture (positions).",
        read=some_of(*ABLATIONS),
        flag="only",
    )
    alphas: tuple[float, ...] = option("0.5,1,2,3", "Of CFO, by which it is scaled.", read=parse_positive)
    counts: tuple[int, ...] = option("2,4,6,8,10", "Chunks of a prompt, in turn.", read=parse_numbers)
    sizes: tuple[int, ...] = option("64,128,256", "Longest chunks, in turn.", read=parse_numbers)
    top_k: int = option(6, "Chunks of a prompt, where they are not counted in turn.", least=1)
    chunk_tokens: int = option(128, CHUNK_TOKENS, least=16)
    ratio: float = option(0.3, "Share of each chunk's tokens, where it is the same for all cases.", least=0)
    focus: int = option(3, "Layers that the same chunks have to lead for.", least=1)
    order: str = option(
        "document",
        "Of retrieved chunks: as they stand in their document (document), as in the collection, best first (best), or "
        "shuffled.",
        read=one_of(*ORDERS),
    )
    steps: int = option(16, "Tokens of the answers that are compared.", least=1)
    seed: int = option(0, SEED, least=0)
    data: Path = option(MISSING, "Corpora with questions, or questions with passages.", kind=Path, told=False)
