"""On the torch engine: every case through the cache, the disk throttled by a token bucket, the engine by pauses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from tqdm import tqdm

from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings
from benchmarks.caches import capture, memory_cache
from benchmarks.cake import ASYNC, EXACT, LAYER, REAL, CakeBenchOptions
from benchmarks.cake.conditions import Conditions
from benchmarks.cake.costs import paper_seconds_per_byte, plain_seconds
from benchmarks.cake.prompt import AGAINST, ColdPrompt, ColdStore
from benchmarks.cake.shapes import paper_heads, shaped
from benchmarks.corpus import CONTEXT, QUESTION, check_room, prompt_chunks, read_texts, split_documents, with_cut
from benchmarks.folder import bench_folder
from benchmarks.output import Row, common_settings, publish
from ragcache.drawing import time_line
from ragcache.errors import ConfigError
from ragcache.kvgen import KVGen
from ragcache.report import Report
from ragcache.store import open_store
from ragcache.store.codec import open_codec
from ragcache.types import Chunk, Variant

TRACE_STEPS = 10  # changes of a trace while the prompt is computed
EXTRA = ("preload", "trace", "shape", "codec", *AGAINST)  # columns that the table has where something stands in them


def main(settings: Settings, options: CakeBenchOptions, out: Path) -> None:
    for codec in options.codecs:
        open_codec(codec)  # a wrong one is said before anything is loaded
    check(options)
    if settings.engine == "vllm":
        from benchmarks.cake.vllm import run as run_vllm  # vLLM is not everywhere

        run_vllm(settings, read_texts(options.data), options, out)
    else:
        run(load_torch_model(settings), read_texts(options.data), options, out)


def check(options: CakeBenchOptions) -> None:
    """Raises ConfigError."""
    if options.disk == REAL and (options.traces or set(options.preload) & {ASYNC, LAYER}):
        raise ConfigError("--disk real has its own speed: measure --traces and --preload on the throttled one")
    if LAYER in options.preload and (options.traces or set(options.utilisations) != {1.0}):
        raise ConfigError(
            "--preload layer awaits layers within a pass, which others' share of the device would be charged for: give "
            "--utilisations 1 and no --traces"
        )


def run(parts: TorchModel, texts: Sequence[str], options: CakeBenchOptions, out: Path | None) -> list[Row]:
    rows: list[Row] = []
    drawn: dict[str, Report] = {}
    for shape in options.shapes:
        model = shaped(parts, shape, max(options.tokens), options.seed)
        check_room(model, max(options.tokens))
        for prompt in prompts(model, shape, texts, options, drawn):
            for conditions in tqdm(list(cases(prompt, options)), desc=f"cake, {prompt.kind}", unit="case"):
                rows += prompt.rows(conditions)
    if options.plot is not None:
        write_plot(options.plot, drawn)
    told = common_settings(parts) | options.settings() | {"context": CONTEXT}
    publish(told, rows, out, hidden=[name for name in EXTRA if len({row[name] for row in rows}) == 1])
    return rows


def cases(prompt: ColdPrompt, options: CakeBenchOptions) -> Iterator[Conditions]:
    step = sum(prompt.costs.computes) / TRACE_STEPS
    if options.traces:
        yield from (Conditions.drawn(number, step, options.seed) for number in range(1, options.traces + 1))
        return
    speeds = options.bandwidths[:1] if options.disk == REAL else options.bandwidths
    yield from (Conditions.steady(speed, share) for share in options.utilisations for speed in speeds)


def prompts(
    parts: TorchModel, shape: str, texts: Sequence[str], options: CakeBenchOptions, drawn: dict[str, Report]
) -> Iterator[ColdPrompt]:
    """Each with its KV on a disk, while it is asked for."""
    system, spec = parts.template.system(), parts.engine.spec
    # One document: what opens one is kept as it is in every codec, and the samples are short.
    by_length = {each: split_documents(parts.template, ["\n\n".join(texts)], each) for each in options.chunk_tokens}
    for tokens in options.tokens:
        seconds_per_byte = 0.0
        for each, codec, kind in product(options.chunk_tokens, options.codecs, options.kinds):
            chunks = prompt_chunks(parts.template, by_length[each], tokens, QUESTION, options.seed)
            if not seconds_per_byte:  # one disk for all of them
                plain = plain_seconds(parts, system, chunks, options.cost_rounds)
                seconds_per_byte = paper_seconds_per_byte(plain, spec, paper_heads(parts, shape), chunks)
            with bench_folder(parts.settings.cache_dir) as folder:
                store = stored(parts, kind, by_length[each], chunks, codec, folder)
                told = {"shape": shape, "codec": codec}
                yield ColdPrompt(parts, kind, chunks, store, each, seconds_per_byte, options, told, drawn)


def stored(
    parts: TorchModel,
    kind: str,
    documents: Sequence[Sequence[Chunk]],
    chunks: Sequence[Chunk],
    codec: str,
    folder: Path,
) -> ColdStore:
    """The KV of the chunks: each behind all before it in the prompt, or behind its neighbours in its document."""
    disk, ram = open_store(folder, ram_bytes=0, codec=codec), open_store(codec=codec)
    for variant in captured(parts, kind, documents, chunks):
        disk.put(variant)
        ram.put(variant)
    return ColdStore(disk, ram, folder, codec)


def captured(
    parts: TorchModel, kind: str, documents: Sequence[Sequence[Chunk]], chunks: Sequence[Chunk]
) -> Iterator[Variant]:
    system = parts.template.system()
    if kind == EXACT:
        kvgen = KVGen(parts.engine, len(chunks))
        behind = kvgen.system(system)
        yield behind
        yield from kvgen.document(behind, list(dict.fromkeys(chunks)))
    else:
        cache = memory_cache(parts, CONTEXT)
        yield cache.system_variant(system)
        yield from capture(cache, system, with_cut(documents, chunks), chunks)


def write_plot(path: Path, drawn: dict[str, Report]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(time_line(drawn), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error}; name another place with --plot") from error
