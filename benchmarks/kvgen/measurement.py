"""Capture and prefill in turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, cycle
from pathlib import Path

from tqdm import tqdm

from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings
from benchmarks.caches import measured_capture, memory_cache
from benchmarks.choices import CONTEXTS
from benchmarks.corpus import fill, read_texts, split_documents
from benchmarks.kvgen import KvgenBenchOptions
from benchmarks.output import Row, common_settings, publish
from ragcache.errors import ConfigError

CONTEXT = "document"


def main(settings: Settings, options: KvgenBenchOptions, out: Path) -> None:
    run(load_torch_model(settings), read_texts(options.data), options, out)


def run(parts: TorchModel, texts: Sequence[str], options: KvgenBenchOptions, out: Path | None) -> list[Row]:
    room = parts.engine.spec.max_tokens - len(parts.template.system())
    if max(options.tokens) > room:
        raise ConfigError(f"--tokens {max(options.tokens)}: behind the System segment the model's context has {room}")
    cache = memory_cache(parts, CONTEXT)
    system = cache.system_variant(parts.template.system())
    pool = list(chain.from_iterable(split_documents(parts.template, texts, options.chunk_tokens)))
    rows = [
        measured_capture(cache, system, fill(cycle(pool), tokens), options.rounds)
        for tokens in tqdm(options.tokens, desc="kvgen", unit="length")
    ]
    publish(common_settings(parts) | options.settings() | {"context_chunks": CONTEXTS[CONTEXT]}, rows, out)
    return rows
