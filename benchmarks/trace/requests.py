"""The requests of a trace: which passages each reads, in their order, and how long they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragcache.errors import ConfigError


@dataclass(frozen=True)
class TraceRequest:
    passages: tuple[int, ...]  # places in `Trace.tokens`, each once: a prompt holds no copy
    question: int  # tokens that stand behind them, and are nobody else's


@dataclass(frozen=True)
class Trace:
    """In order of time. The system prompts count as one, which all share and which is there."""

    requests: Sequence[TraceRequest]
    tokens: NDArray[np.int64]  # of each passage
    system: int  # tokens, of the median request

    @property
    def uses(self) -> list[int]:
        """Passages, as they are read."""
        return [place for request in self.requests for place in request.passages]


def read_trace(path: Path) -> Trace:
    """Raises ConfigError."""
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        trace = _trace(lines)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is no trace: give JSON lines with system and passages, as [id, tokens], and input_tokens ({error})"
        ) from error
    if not trace.uses:
        raise ConfigError(f"{path} has no request that reads passages")
    return trace


def _trace(lines: Iterable[dict[str, Any]]) -> Trace:
    places: dict[int, int] = {}
    tokens: list[int] = []
    requests, systems = list[TraceRequest](), list[int]()
    for line in lines:
        system, passages = _lengths(line["system"]), _lengths(line["passages"])
        for name, length in passages.items():
            if places.setdefault(name, len(tokens)) == len(tokens):
                tokens.append(length)
        systems.append(sum(system.values()))
        question = int(line["input_tokens"]) - systems[-1] - sum(length for _, length in line["passages"])
        requests.append(TraceRequest(tuple(places[name] for name in passages), max(1, question)))
    return Trace(requests, np.array(tokens, np.int64), int(np.median(systems)) if systems else 0)


def _lengths(told: Iterable[tuple[int, int]]) -> dict[int, int]:
    found = {int(name): int(tokens) for name, tokens in told}
    if any(tokens < 1 for tokens in found.values()):
        raise ValueError("a passage without a token")
    return found
