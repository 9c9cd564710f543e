"""On the torch engine: pieces as a loader brings them, up to their place, and steps as a prefill takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from statistics import median

from tqdm import tqdm

from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings
from benchmarks.caches import forget_pages
from benchmarks.corpus import fill, read_texts, split_documents
from benchmarks.folder import bench_folder
from benchmarks.output import Row, common_settings, publish
from benchmarks.rates import RatesBenchOptions
from benchmarks.timing import timed
from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ConfigError, StoreError
from ragcache.kvgen import KVGen
from ragcache.loader import SegmentPiece
from ragcache.loader.reading import bring
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.store.codec import open_codec
from ragcache.store.entry import LOSSLESS
from ragcache.store.findings import DISK, RAM
from ragcache.types import Chunk, Variant, VariantKey

CHUNK_TOKENS = 200  # that the texts are cut into before they are put together again
ENGINE = "engine"  # the tier of what is computed


def main(settings: Settings, options: RatesBenchOptions, out: Path) -> None:
    for codec in options.codecs:
        open_codec(codec)  # a wrong one is said before anything is loaded
    run(load_torch_model(settings), read_texts(options.data), options, out)


def run(parts: TorchModel, texts: Sequence[str], options: RatesBenchOptions, out: Path | None) -> list[Row]:
    spec = parts.engine.spec
    longest = max(options.context, len(parts.template.system()) + 2 + max(options.tokens))
    if longest > spec.max_tokens:
        raise ConfigError(f"{longest} positions are to be computed, and the model's context has {spec.max_tokens}: "
                          "ask for less --tokens and --context")  # fmt: skip
    pool = list(chain.from_iterable(split_documents(parts.template, texts, CHUNK_TOKENS)))
    chunks = {tokens: joined(pool, tokens) for tokens in options.tokens}
    rows = [*loading(parts, chunks, options), *computing(parts, joined(pool, options.context), options)]
    publish(common_settings(parts) | options.settings(), rows, out)
    return rows


def joined(pool: Sequence[Chunk], tokens: int) -> Chunk:
    return Chunk(tuple(token for chunk in fill(cycle(pool), tokens) for token in chunk.ids))


# -- loading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TierPlace:
    """Where a piece is brought from. `before` is done each time, and does not count."""

    store: KVStore
    before: Callable[[], None]


def loading(parts: TorchModel, chunks: Mapping[int, Chunk], options: RatesBenchOptions) -> Iterator[Row]:
    """Rounds of all tiers and codecs in turns."""
    for tokens, chunk in tqdm(chunks.items(), desc="load", unit="length"):
        variant, buffer = _captured(parts, chunk), parts.engine.buffer(tokens)
        with bench_folder(parts.settings.cache_dir) as folder:
            places = {
                (tier, codec): _place(tier, codec, Path(folder, f"{tier}-{codec}"), variant)
                for tier in options.tiers
                for codec in (options.codecs if tier != RAM else (None,))  # it holds what the engine computed
            }
            seconds: dict[tuple[str, str | None], list[float]] = {name: [] for name in places}
            for turn in range(options.rounds + 1):
                for name, place in places.items():
                    place.before()
                    taken = timed(partial(_bring, parts.engine, place.store, variant.key, buffer))
                    if turn:  # the first round warms up
                        seconds[name].append(taken)
            for (tier, codec), taken_each in seconds.items():
                nbytes = _nbytes(places[tier, codec].store, variant.key)
                yield _row(tier, codec, tokens, None, nbytes, variant.nbytes, median(taken_each))


def _captured(parts: TorchModel, chunk: Chunk) -> Variant:
    """Behind more than its context tells: KV that a prompt could begin with stays as it is in every codec."""
    kvgen = KVGen(parts.engine, 1)
    system = kvgen.system(parts.template.system())
    *_, variant = kvgen.document(system, [Chunk(chunk.ids[:1]), Chunk(chunk.ids[:2]), chunk])
    return variant


def _place(tier: str, codec: str | None, folder: Path, variant: Variant) -> TierPlace:
    store = open_store(codec=LOSSLESS) if codec is None else open_store(folder, ram_bytes=0, codec=codec)
    store.put(variant)
    return TierPlace(store, partial(forget_pages, folder) if tier == DISK else lambda: None)


def _bring(engine: TorchEngine, store: KVStore, key: VariantKey, buffer: KVBuffer) -> None:
    found = bring(store, SegmentPiece(0, 0, (key,)))
    assert found.loaded is not None, "all of a piece is brought at once"
    if found.loaded.chosen is None:
        raise StoreError(f"what was just stored is not there: {'; '.join(found.loaded.incidents) or key.digest}")
    for block in found.blocks:
        engine.place_block(buffer, block)
    engine.synchronize()


def _nbytes(store: KVStore, key: VariantKey) -> int:
    (info,) = (one for one in store.variants(key.family) if one.key == key)
    return info.nbytes


# -- computing --------------------------------------------------------------------------------------------------------


def computing(parts: TorchModel, text: Chunk, options: RatesBenchOptions) -> Iterator[Row]:
    """Each step behind those before it."""
    engine = parts.engine
    buffer = engine.buffer(len(text))
    spans = [range(at, min(at + options.step, len(text))) for at in range(0, len(text), options.step)]
    seconds: list[list[float]] = [[] for _ in spans]
    for turn in tqdm(range(options.rounds + 1), desc="compute", unit="round"):
        for place, span in enumerate(spans):
            taken = timed(partial(engine.compute, text.ids[span.start : span.stop], span, buffer))
            if turn:
                seconds[place].append(taken)
    for span, taken_each in zip(spans, seconds, strict=True):
        nbytes = len(span) * engine.spec.token_bytes
        yield _row(ENGINE, None, len(span), span.start, nbytes, nbytes, median(taken_each))


def _row(
    tier: str, codec: str | None, tokens: int, position: int | None, nbytes: int, kv_bytes: int, seconds: float
) -> Row:
    return {
        "tier": tier,
        "codec": codec,
        "tokens": tokens,
        "position": position,
        "mb": nbytes / 1e6,  # as it lies there
        "seconds": seconds,
        "mb_per_s": nbytes / 1e6 / seconds,
        "kv_mb_per_s": kv_bytes / 1e6 / seconds,  # as the engine holds it
    }
