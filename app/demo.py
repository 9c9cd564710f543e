"""`ragcache demo`: three sample documents, one question, answered with cached KV and without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from app.compose import Parts, load_embedder, load_parts, load_store
from app.samples import read_samples
from app.settings import Settings
from ragcache.cache import ChunkCache
from ragcache.generation import Generation
from ragcache.report import COMPUTED, Report
from ragcache.types import Chunk, Segment
from retriever.embedder import Embedder
from splitter.passages import split_passages

CHUNK_TOKENS = 200
CHUNKS = 5
ANSWER_TOKENS = 64
QUESTION = "Who designed the lighthouse?"
NEXT = """\
Next: `ragcache doctor` checks this installation; `ragcache bench quality --data …` measures what reuse costs in
answers, on questions of your own, and `ragcache bench ttft` what it saves."""


@dataclass(frozen=True)
class Passage:
    document: str
    text: str
    chunk: Chunk


def run(settings: Settings) -> None:
    print(f"Preparing the model {settings.model} (converted once, on first use) …", flush=True)
    parts, embedder = load_parts(settings), load_embedder(settings)
    passages = read_passages(parts)
    store = load_store(settings)
    ingest(parts.cache(store), parts, passages)
    found = search(embedder, passages, QUESTION)
    segments = (parts.template.system(), *(passage.chunk for passage in found), parts.template.question(QUESTION))
    warm_up(parts.cache(store, keep_missed=False), segments)
    # A store that is opened anew has nothing in RAM, as after a restart.
    cold = load_store(settings) if settings.disk_bytes else store
    cache = parts.cache(cold, keep_missed=False)
    print(f"\nQuestion: {QUESTION}\nAnswer:   ", end="", flush=True)
    cached = answer(cache, parts, segments)
    without = cache.generate(segments, max_tokens=1, linker="full").report
    print(
        f"Passages: {', '.join(sorted({passage.document for passage in found}))}\n\n{told(cached, without)}\n\n{NEXT}"
    )


def read_passages(parts: Parts) -> list[Passage]:
    count, chunk = parts.template.count, parts.template.chunk
    return [
        Passage(name, text[start:end], chunk(text[start:end]))
        for name, text in read_samples().items()
        for start, end in split_passages(text, count, CHUNK_TOKENS)
    ]


def ingest(cache: ChunkCache, parts: Parts, passages: Sequence[Passage]) -> None:
    """Compute and keep the KV of every passage, each document in its order."""
    with tqdm(total=len(passages), desc="Computing the KV of the sample documents", unit="chunk") as bar:
        for name in dict.fromkeys(passage.document for passage in passages):
            chunks = [passage.chunk for passage in passages if passage.document == name]
            for _ in cache.ingest(parts.template.system(), chunks):
                bar.update()


def search(embedder: Embedder, passages: Sequence[Passage], question: str) -> list[Passage]:
    """The passages nearest to the question, in reading order: neighbours then keep each other as context."""
    vectors = embedder.embed([question, *(passage.text for passage in passages)])
    scores = vectors[1:] @ vectors[0]
    return [passages[place] for place in sorted((-scores).argsort(kind="stable")[:CHUNKS])]


def warm_up(cache: ChunkCache, segments: Sequence[Segment]) -> None:
    """What only a first call pays would blur the comparison, so both sides run once before it."""
    for linker in (None, "full"):
        for _ in cache.generate(segments, max_tokens=2, linker=linker):
            pass


def answer(cache: ChunkCache, parts: Parts, segments: Sequence[Segment]) -> Report:
    """Print the answer as it comes."""
    generation: Generation = cache.generate(segments, max_tokens=ANSWER_TOKENS, stop=parts.template.stop)
    shown = ""
    for _ in generation:
        text = parts.template.decode(generation.tokens)
        if not text.endswith("\ufffd"):  # the token ends inside a character: wait for the rest of it
            print(text[len(shown) :], end="", flush=True)
            shown = text
    print(flush=True)
    return generation.report


def told(cached: Report, without: Report) -> str:
    """Both runs in a line."""
    tokens = sum(chunk.tokens for chunk in cached.chunks)
    tiers = Counter(chunk.tier for chunk in cached.chunks)
    where = [
        f"{count}/{len(cached.chunks)} chunks {tier if tier == COMPUTED else f'from {tier}'}"
        for tier, count in tiers.most_common()
    ]
    return " · ".join([
        f"first token {cached.ttft_s:.2f} s (without cache {without.ttft_s:.2f} s, measured)",
        *where,
        f"{cached.repaired / tokens:.0%} repaired".replace("%", " %"),
    ])  # fmt: skip
