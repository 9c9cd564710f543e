"""Linked and recomputed prompts in turns, idle and beside others, on either engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from random import Random
from statistics import median
from threading import Barrier, Event, Thread
from time import sleep

from tqdm import tqdm

from app.models.loading import load_torch_model
from app.settings import Settings
from benchmarks.corpus import CONTEXT, QUESTION, check_room, prompt_chunks, read_texts, split_documents
from benchmarks.output import Row, common_settings, publish
from benchmarks.partial import BUSY, KEEPING, PartialBenchOptions
from benchmarks.partial.prompts import Prompts
from benchmarks.partial.torch import TorchPrompts
from benchmarks.partial.unchanging import UnchangingStore
from benchmarks.timing import paired
from ragcache.cache import ChunkCache
from ragcache.keeping import QUIET_S
from ragcache.report import FULL, Report
from ragcache.store.base import KVStore
from ragcache.types import Chunk, Segment

DECODING = "beside"  # names of the threads that read the requests beside begin so
STORY, ANSWER = "Tell a long story.", 512  # of a request beside: its question and its tokens; then the next one begins
WARM_UPS = 3  # rounds that do not count: in them the predictions become this machine's


def main(settings: Settings, options: PartialBenchOptions, out: Path) -> None:
    texts = read_texts(options.data)
    if settings.engine == "vllm":
        from benchmarks.partial.vllm import open_prompts  # vLLM is not everywhere

        with open_prompts(settings, max(*options.tokens, 2 * ANSWER)) as prompts:
            measure(prompts, texts, options, out)
    else:
        parts = load_torch_model(settings)
        check_room(parts, max(options.tokens))
        measure(TorchPrompts(parts), texts, options, out)


@contextmanager
def decoding(cache: ChunkCache, segments: Sequence[Segment], requests: int) -> Iterator[None]:
    """So many requests decode while it is open, each read by a thread of its own, as in a web server."""
    stop, started = Event(), Barrier(requests + 1)

    def decode() -> None:
        waited = False
        while not stop.is_set():
            with closing(cache.generate(segments, max_tokens=ANSWER, linker=FULL)) as answer:
                for _ in answer:
                    if not waited:
                        started.wait()
                        waited = True
                    if stop.is_set():
                        break

    threads = [Thread(target=decode, name=f"{DECODING}-{number}") for number in range(requests)]
    for thread in threads:
        thread.start()
    started.wait()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def measure(prompts: Prompts, texts: Sequence[str], options: PartialBenchOptions, out: Path | None) -> list[Row]:
    parts = prompts.parts
    documents = split_documents(parts.template, texts, options.chunk_tokens)
    rows: list[Row] = []
    for tokens in tqdm(options.tokens, desc="partial", unit="length"):
        chunks = prompt_chunks(parts.template, documents, tokens, QUESTION, options.seed)
        segments = (parts.template.system(), *chunks, parts.template.question(QUESTION))
        shares = {share: prompts.captured(documents, part_of(chunks, share, options.seed)) for share in options.cached}
        for beside in options.beside:
            with prompts_beside(prompts, options) if beside == BUSY else nullcontext():
                rows += _measure(prompts, segments, shares, beside, options)
    publish(common_settings(parts) | options.settings() | {"context": CONTEXT}, rows, out)
    return rows


def prompts_beside(prompts: Prompts, options: PartialBenchOptions) -> AbstractContextManager[None]:
    template = prompts.parts.template
    segments = (template.system(), template.question(STORY))
    return decoding(prompts.cache(prompts.captured([], [])), segments, options.decoding)


def part_of(chunks: Sequence[Chunk], share: int, seed: int) -> list[Chunk]:
    """Chunks by lot that have about so many percent of the tokens; another prompt's too, if none is wanted."""
    wanted = share * sum(map(len, chunks)) / 100
    chosen: list[Chunk] = []
    for chunk in Random(seed).sample(list(chunks), len(chunks)):
        if wanted > 0 and sum(map(len, chosen)) + len(chunk) / 2 <= wanted:
            chosen.append(chunk)
    return chosen


def _measure(
    prompts: Prompts,
    segments: Sequence[Segment],
    shares: Mapping[int, KVStore],
    beside: str,
    options: PartialBenchOptions,
) -> list[Row]:
    """Rounds of all shares in turns."""
    pairs: dict[int, list[tuple[Report, Report]]] = {share: [] for share in shares}
    for turn in range(WARM_UPS + options.rounds):
        for share, store in shares.items():
            order = (options.linker, FULL) if turn % 2 else (FULL, options.linker)
            reports = {}
            for linker in order:
                if beside == KEEPING:
                    prompts.first_token(UnchangingStore(store), segments, linker, keep_missed=linker != FULL)
                    sleep(2 * QUIET_S)  # by then the capture has begun
                reports[linker] = prompts.first_token(store, segments, linker)
                prompts.parts.keeper.settle()
            if turn >= WARM_UPS:
                pairs[share].append((reports[options.linker], reports[FULL]))
    return [_row(prompts.name, share, beside, measured, options.seed) for share, measured in pairs.items()]


def _row(engine: str, share: int, beside: str, pairs: Sequence[tuple[Report, Report]], seed: int) -> Row:
    ratio, high = paired([linked.ttft_s for linked, _ in pairs], [stock.ttft_s for _, stock in pairs], seed)
    return {
        "engine": engine,
        "tokens": pairs[0][0].prompt_tokens,
        "cached": share,
        "beside": beside,
        "reused": median(linked.reused for linked, _ in pairs),
        "ttft_s": median(linked.ttft_s for linked, _ in pairs),
        "stock_s": median(stock.ttft_s for _, stock in pairs),
        "ratio": ratio,
        "ratio_high": high,
    }
