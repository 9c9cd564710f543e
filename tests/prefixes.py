"""Conversations over a small random model with room for some blocks of a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.generation import Prefilled
from ragcache.loader import Loader
from ragcache.prefix import BlockAddress, addresses
from ragcache.report import Report
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Segment, Text
from tests.tiny import draw, make_system

SYSTEM = make_system(27)
DEPTH = 9  # tokens of an answer


def text(count: int, seed: int, border: str = "") -> Text:
    return Text(draw(count, 3000 + seed), border)


def cache_over(engine: TorchEngine, store: KVStore, loader: Loader | None = None, linker: str = "naive") -> ChunkCache:
    return ChunkCache(engine, store, linker, loader=loader)


def disk(folder: Path, codec: str = "raw") -> KVStore:
    return open_store(folder, ram_bytes=0, codec=codec)


def said(cache: ChunkCache, *segments: Segment, tokens: int = DEPTH) -> tuple[tuple[int, ...], Report]:
    answer = cache.generate(segments, max_tokens=tokens)
    return tuple(answer), answer.report


def blocks_of(cache: ChunkCache, segments: Sequence[Segment]) -> list[BlockAddress]:
    return list(addresses(segments, cache.engine.spec.fingerprint))


def stored(cache: ChunkCache, segments: Sequence[Segment]) -> list[bool]:
    """Of each block of a prompt."""
    found = [cache.store.variants(block.key.family) for block in blocks_of(cache, segments)]
    return [bool(infos) for infos in found]


@dataclass
class Talk:
    """A conversation: each prompt has all that was said before."""

    cache: ChunkCache
    front: tuple[Segment, ...] = (SYSTEM,)
    history: tuple[int, ...] = ()
    reports: list[Report] = field(default_factory=list)

    def prompt(self, question: Text) -> list[Segment]:
        return [*self.front, Text((*self.history, *question.ids))]

    def ask(self, question: Text) -> list[Segment]:
        prompt = self.prompt(question)
        answer, report = said(self.cache, *prompt)
        self.history += (*question.ids, *answer)
        self.reports.append(report)
        return prompt


def same_bits(ours: Prefilled, theirs: Prefilled) -> bool:
    pairs = [(ours.logits, theirs.logits)]
    for mine, other in ((ours.buffer.k, theirs.buffer.k), (ours.buffer.v, theirs.buffer.v)):
        pairs.append((mine[:, :, : ours.length], other[:, :, : theirs.length]))
    return all(torch.equal(mine, other) for mine, other in pairs)


def warm(cache: ChunkCache, segments: Sequence[Segment]) -> Prefilled:
    return prefill_prompt(cache, segments)
