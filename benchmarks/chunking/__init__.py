"""How well chunks serve retrieval: recall, precision and IoU of characters, ours and llama-index's splitters.

For each question, the chunks of its corpus that are nearest to it are retrieved, by the cosine of their vectors.
Over the characters they hold: recall is the part of the answer that they hold, precision the part of them that is
answer, IoU the answer that they hold over both together. Means over the questions.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from benchmarks.options import BenchOptions, option
from splitter.base import ChunkLimits


@dataclass(frozen=True)
class ChunkingBenchOptions(BenchOptions):
    """How much of an answer is in the chunks that are retrieved for its question, by splitter."""

    of_settings = ("model", "device", "cache_dir")

    corpora: Path = option(MISSING, "Folder of the texts that the questions name.", kind=Path, told=False)
    questions: Path = option(MISSING, "JSON lines with corpus, question and references.", kind=Path, told=False)
    top_k: int = option(5, "Chunks that are retrieved for a question.", least=1)
    min_tokens: int = option(32, "Fewest tokens of a chunk of ours.", least=1)
    max_tokens: int = option(256, "Most tokens of a chunk of ours.", least=8)

    @property
    def limits(self) -> ChunkLimits:
        return ChunkLimits(self.min_tokens, self.max_tokens)
