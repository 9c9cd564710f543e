"""What an index of vectors finds of what brute force finds, how quickly, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.choices import parse_names, parse_numbers
from benchmarks.options import SEED, BenchOptions, option
from retriever.vectors import check_name


def parse_indexes(text: str, flag: str) -> tuple[str, ...]:
    return tuple(map(check_name, parse_names(text, flag)))


@dataclass(frozen=True)
class RetrievalBenchOptions(BenchOptions):
    """What an index of vectors finds of what brute force finds, and how quickly."""

    of_settings = ()

    vectors: tuple[int, ...] = option(
        "10000,100000,1000000", "Sizes to measure, with commas between them.", read=parse_numbers
    )
    indexes: tuple[str, ...] = option("auto", "auto, flat, hnsw, ivf, with commas between them.", read=parse_indexes)
    dimension: int = option(384, "Of the vectors.", least=2)
    clusters: int = option(1000, "That the vectors and the queries are drawn from.", least=1)
    spread: float = option(1.0, "Of a cluster, against a distance of 1 to its centre.", least=0.0)
    queries: int = option(1000, "Asked one at a time; none is one of the vectors.", least=1)
    seed: int = option(0, SEED)
