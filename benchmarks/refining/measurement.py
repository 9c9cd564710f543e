"""Each question is answered over two caches that were filled alike; one of them computes chunks in the contexts of its
prompts. Of the second half both are compared with the full recompute.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from app.models.loading import TorchModel, load_embedder, load_torch_model
from benchmarks.corpus import sized_splitter
from benchmarks.data import Dataset, read_dataset
from benchmarks.output import Row, publish
from benchmarks.quality.metrics import divergence
from benchmarks.refining import INGEST, ORDERED, RefiningBenchOptions
from ragcache.cache import ChunkCache
from ragcache.engine.torch.forcing import ForcedAnswers
from ragcache.keeping import Keeper
from ragcache.planning import plan_prompt
from ragcache.refining import Refining
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, System

if TYPE_CHECKING:
    import torch

    from app.settings import Settings


@dataclass(frozen=True)
class ComparedAnswer:
    """One answer over one cache by one linker."""

    kl: float
    agree: float
    part: float  # of the tokens before the question, those that were computed
    cfo: float  # mean over its chunks


@dataclass
class FilledCache:
    """Of one system."""

    cache: ChunkCache
    keeper: Keeper
    orders: bool = False

    def ordered(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """As it asks for them: their chunks stand between the System segment and the question."""
        system, *middle, question = segments
        chunks = [one for one in middle if isinstance(one, Chunk)]
        if not (self.orders and isinstance(system, System)):
            return segments
        order = self.cache.least_repaired(system, chunks)
        return [system, *(chunks[place] for place in order), question]

    def ask(self, segments: Sequence[Segment]) -> None:
        """As an application does, and what comes behind the answer."""
        with closing(self.cache.generate(segments, max_tokens=1)) as stream:
            list(stream)
        self.keeper.settle()

    def cfo(self, segments: Sequence[Segment]) -> float:
        plan = plan_prompt(segments, self.cache.engine.spec.fingerprint, self.cache.store)
        return float(np.mean([one.candidates[0].reuse.cfo() for one in plan.chunks]))


def main(settings: Settings, options: RefiningBenchOptions, out: Path) -> None:
    parts, dataset = load_torch_model(settings), read_dataset(options.data).sample(options.limit, options.seed)
    documents = _documents(parts, dataset, options.chunk_tokens)
    caches = _filled(parts, documents, options)
    found: dict[tuple[str, str], list[ComparedAnswer]] = {}
    prompts = list(_prompts(parts, settings, dataset, documents, options))
    for number, segments in enumerate(prompts):
        if number >= len(prompts) // 2:
            for name, one in _compared(parts, caches, segments, options):
                found.setdefault(name, []).append(one)
        for filled in caches.values():
            filled.ask(filled.ordered(segments))
        if (number + 1) % 10 == 0:
            print(f"{number + 1} of {len(prompts)} questions", flush=True)
    rows = [_row(*name, found[name], caches[name[0]]) for name in found]
    each = {" ".join(name): [asdict(one) for one in of] for name, of in found.items()}
    publish(
        {**options.settings(), "data": dataset.digest, "chunks": sum(map(len, documents))}, rows, out, {"answers": each}
    )
    for filled in caches.values():
        filled.keeper.close()


def _documents(parts: TorchModel, dataset: Dataset, chunk_tokens: int) -> list[list[Chunk]]:
    """Of the collection, in its order; a text that stands twice counts once."""
    passages = [text for question in dataset.questions for text in question.contexts]
    splitter, seen = sized_splitter(parts.template, chunk_tokens), set[str]()
    documents = []
    for text in dict.fromkeys([*dataset.corpora.values(), *passages]):
        chunks = [parts.template.chunk(text[one.start : one.end]) for one in splitter.split(text)]
        documents.append([one for one in chunks if one.hash not in seen and not seen.add(one.hash)])  # type: ignore[func-returns-value]
    return [document for document in documents if document]


def _filled(
    parts: TorchModel, documents: Sequence[Sequence[Chunk]], options: RefiningBenchOptions
) -> dict[str, FilledCache]:
    """By system. The documents are computed once."""
    opened = {}
    for name in options.systems:
        store, keeper = open_store(codec=parts.settings.codec), Keeper()
        cache = ChunkCache(parts.engine, store, "auto", context_chunks=parts.settings.context_chunks, keeper=keeper)
        opened[name] = FilledCache(cache, keeper, orders=name == ORDERED)
        cache.system_variant(parts.template.system())
        cache.refining = None if name == INGEST else Refining(options.times)
    first, *others = opened.values()
    for document in documents:
        for variant in first.cache.ingest(parts.template.system(), document):
            for other in others:
                other.cache.store.put(variant)
    return opened


def _prompts(
    parts: TorchModel,
    settings: Settings,
    dataset: Dataset,
    documents: Sequence[Sequence[Chunk]],
    options: RefiningBenchOptions,
) -> Iterator[list[Segment]]:
    """In an order that is drawn. Chunks are retrieved from the whole collection, and stand in its order."""
    embed, template = load_embedder(settings).embed, parts.template
    chunks = [chunk for document in documents for chunk in document]
    vectors = np.asarray(embed([template.decode(chunk.ids) for chunk in chunks]))
    questions = list(dict.fromkeys(one.text for one in dataset.questions))
    random.Random(options.seed).shuffle(questions)
    for question, vector in zip(questions, np.asarray(embed(questions)), strict=True):
        best = sorted(np.argsort(-(vectors @ vector), kind="stable")[: options.top_k].tolist())
        yield [template.system(), *(chunks[place] for place in best), template.question(question)]


def _compared(
    parts: TorchModel, caches: dict[str, FilledCache], segments: Sequence[Segment], options: RefiningBenchOptions
) -> Iterator[tuple[tuple[str, str], ComparedAnswer]]:
    expected: dict[tuple[Segment, ...], tuple[tuple[int, ...], torch.Tensor]] = {}  # by the order of the chunks
    for system, filled in caches.items():
        asked = tuple(filled.ordered(segments))
        forcing = ForcedAnswers(parts.engine, filled.cache.source, options.steps, parts.template.stop)
        if asked not in expected:
            expected[asked] = forcing.full(asked)
        (ids, logits), cfo = expected[asked], filled.cfo(asked)
        for name, linker in options.linkers.items():
            made = forcing.prefilled(asked, linker)
            told = divergence(logits, forcing.forced(made, ids, len(logits)))
            yield (system, name), ComparedAnswer(told.kl, told.agree, made.report.part, cfo)


def _row(system: str, linker: str, found: Sequence[ComparedAnswer], filled: FilledCache) -> Row:
    refining = filled.cache.refining
    (held,) = filled.cache.store.stats()
    return {
        "system": system,
        "linker": linker,
        "questions": len(found),
        "kl": float(np.mean([one.kl for one in found])),
        "agree": float(np.mean([one.agree for one in found])),
        "part": float(np.mean([one.part for one in found])),
        "cfo": float(np.mean([one.cfo for one in found])),
        "captured": refining.captured if refining else 0,
        "captured_s": refining.seconds if refining else 0.0,
        "entries": held.entries,
        "nbytes": held.nbytes,
    }
