"""What every loader promises. A new one needs a row in LOADERS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.loader import SYSTEM, Delivery, Loader, SegmentPiece
from ragcache.loader.auto import AutoLoader
from ragcache.loader.cake import CakeLoader
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.rates import Rates
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Segment, Variant
from tests.loaders import ScatteredLoader
from tests.rounding import keep_rounded
from tests.tiny import Tiny, make_chunks, make_question, make_system

LOADERS: Mapping[str, Callable[[], Loader]] = {
    "sequential": SequentialLoader,
    "sequential on threads": lambda: SequentialLoader(DiskThreads(2, "test-read", 60.0)),
    # By a clock that stands still nothing is late, or a busy machine would have chunks computed.
    "cake": lambda: CakeLoader(DiskThreads(2, "test-read", 60.0), clock=lambda: 0.0),
    "cake for a thread that waits for no disk": lambda: CakeLoader(
        DiskThreads(2, "test-read", 60.0), clock=lambda: 0.0, ahead=16, claims=False
    ),
    "by layers": lambda: LayerwiseLoader(DiskThreads(2, "test-read", 60.0)),
    "auto": lambda: AutoLoader(DiskThreads(2, "test-read", 60.0)),
    "scattered": ScatteredLoader,
}
pytestmark = pytest.mark.usefixtures("one_thread")
SEGMENT, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(20, 31, 18, 25)
PROMPT: list[Segment] = [SEGMENT, DOCUMENT[2], DOCUMENT[0], DOCUMENT[3], QUESTION]


@pytest.fixture(params=LOADERS)
def loader(request: pytest.FixtureRequest) -> Iterator[Loader]:
    made = LOADERS[request.param]()
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> KVStore:
    return open_store(tmp_path, ram_bytes=0, codec="raw")


def ingested(tiny: Tiny, store: KVStore) -> list[Variant]:
    cache = ChunkCache(tiny.engine, store, "naive", context_chunks=2)
    return [cache.system_variant(SEGMENT), *cache.ingest(SEGMENT, DOCUMENT)]


def pieces_of(variants: list[Variant]) -> list[SegmentPiece]:
    pieces, start = [], 0
    for place, variant in enumerate(variants):
        pieces.append(SegmentPiece(place - 1, start, (variant.key,)))
        start += len(variant)
    return pieces


def test_every_piece_is_delivered_whole_and_ends_once(tiny: Tiny, store: KVStore, loader: Loader) -> None:
    variants = ingested(tiny, store)
    loading = loader.begin(pieces_of(variants), store)
    taken = list(loading.deliveries())
    assert loading.ended
    assert loading.take() is None
    assert sorted(one.loaded.index for one in taken if one.loaded) == [SYSTEM, 0, 1, 2, 3]
    for place, variant in enumerate(variants):
        own = [one for one in taken if one.piece.index == place - 1]
        assert own[-1].loaded is not None, "the piece ends with its last block"
        assert (own[-1].loaded.chosen, own[-1].loaded.tier, own[-1].loaded.lossless) == (0, "disk", True)
        assert own[-1].origin == variant.origin
        check_whole(own, variant)


def check_whole(deliveries: list[Delivery], variant: Variant) -> None:
    """Each token of each layer once, as it was stored."""
    k, v = torch.full_like(variant.k, torch.nan), torch.full_like(variant.v, torch.nan)
    for delivery in deliveries:
        for block in delivery.blocks:
            span = slice(block.span.start - delivery.piece.start, block.span.stop - delivery.piece.start)
            assert k[block.layers, :, span].isnan().all()
            k[block.layers, :, span], v[block.layers, :, span] = block.k, block.v
    torch.testing.assert_close(k, variant.k, rtol=0, atol=0)
    torch.testing.assert_close(v, variant.v, rtol=0, atol=0)


def test_the_first_variant_that_is_there_and_sound_is_brought(
    tiny: Tiny, store: KVStore, loader: Loader, tmp_path: Path
) -> None:
    _, first, second, *_ = ingested(tiny, store)
    torn = next(path for path in tmp_path.rglob("*") if first.key.digest in path.name)
    torn.write_bytes(torn.read_bytes()[:-1])
    pieces = [
        SegmentPiece(0, 7, (first.key, second.key)),
        SegmentPiece(1, 40, (first.key,)),
        SegmentPiece(2, 90, ()),
    ]
    ends = {one.loaded.index: one.loaded for one in loader.begin(pieces, store).deliveries() if one.loaded}
    assert {index: end.chosen for index, end in ends.items()} == {0: 1, 1: None, 2: None}
    assert "cache entry not used" in (ends[0].incidents + ends[1].incidents)[0]


@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_what_others_may_share_is_not_brought_with_a_loss(
    tiny: Tiny, tmp_path: Path, loader: Loader, codec: str
) -> None:
    lossy = open_store(tmp_path / "lossy", ram_bytes=0, codec="raw")
    _, first, *_ = variants = ingested(tiny, lossy)
    keep_rounded(lossy, variants, codec)
    for shared, chosen in ((False, 0), (True, None)):
        piece = SegmentPiece(0, 7, (first.key,), shared)
        ends = [one.loaded for one in loader.begin([piece], lossy).deliveries() if one.loaded]
        assert [end.chosen for end in ends] == [chosen]


def test_it_can_be_told_to_stop(tiny: Tiny, store: KVStore, loader: Loader) -> None:
    loading = loader.begin(pieces_of(ingested(tiny, store)), store)
    next(loading.deliveries())
    loading.stop()
    assert loading.ended
    assert loading.take() is None
    assert not loading.awaited


@pytest.mark.parametrize("linker", ["naive", "cci:ratio=0.5", "query:ratio=0.2"])
def test_the_answer_is_that_of_the_plain_one(tiny: Tiny, store: KVStore, loader: Loader, linker: str) -> None:
    """Where all is sooner loaded than computed."""
    ingested(tiny, store)
    slow = {"work": [0.0, 1.0, 0.0, 0.0], "loads": {"disk": [0.0, 1e-12, 0.1]}}
    made = [
        prefill_prompt(ChunkCache(tiny.engine, store, context_chunks=2, loader=one, rates=Rates(slow)), PROMPT, linker)
        for one in (SequentialLoader(), loader)
    ]
    assert torch.equal(made[0].logits, made[1].logits)
    assert made[0].report.chunks == made[1].report.chunks


def test_threads_may_share_it(tiny: Tiny, store: KVStore, loader: Loader) -> None:
    pieces = pieces_of(ingested(tiny, store))

    def load(turn: int) -> int:
        loading = loader.begin(pieces, store)
        if turn % 2:
            loading.stop()
        return sum(one.loaded is not None for one in loading.deliveries())

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(load, range(200))) == [0 if turn % 2 else len(pieces) for turn in range(200)]
