"""What is computed behind a stored exact prefix is, to the last bit, what is computed without one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.loader import Loader
from ragcache.loader.cake import CakeLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.policy import Rates, Work
from ragcache.prefix import BLOCK, addresses
from ragcache.report import COMPUTED, PREFIX
from ragcache.store import open_store
from ragcache.types import Chunk, System, Text
from tests.loaders import ScatteredLoader
from tests.prefixes import SYSTEM, blocks_of, cache_over, disk, same_bits, stored, text, warm
from tests.tiny import draw, make_chunks, make_system, make_tiny

LONG = [SYSTEM, text(600, 1)]
DOCUMENT = make_chunks(90, 130, 75, 60)
LOADERS = {
    "sequential": SequentialLoader,
    "on threads": lambda: SequentialLoader(DiskThreads(2, "test-read", 60.0)),
    "cake": lambda: CakeLoader(DiskThreads(2, "test-read", 60.0), claims=False),
    "scattered": ScatteredLoader,
}


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return make_tiny(max_position_embeddings=2048).engine


@pytest.fixture(params=LOADERS)
def loader(request: pytest.FixtureRequest) -> Iterator[Loader]:
    made = LOADERS[request.param]()
    yield made
    made.close()


def cold(engine: TorchEngine, *middle: Chunk) -> ChunkCache:
    """With System, and the chunks' KV, but no prefix."""
    cache = cache_over(engine, open_store(codec="raw"))
    list(cache.ingest(SYSTEM, middle))
    return cache


def kept(engine: TorchEngine, folder: Path, prompt: list, codec: str = "raw") -> ChunkCache:
    """Asked twice: the second time it recurs."""
    cache = cache_over(engine, disk(folder, codec))
    for _ in range(2):
        list(cache.generate(prompt, max_tokens=2))
    return cache


def test_every_depth_goes_on_to_the_same_bits(engine: TorchEngine, tmp_path: Path, loader: Loader) -> None:
    cache = kept(engine, tmp_path, LONG)
    blocks, expected = blocks_of(cache, LONG), warm(cold(engine), LONG)
    assert stored(cache, LONG) == [True] * 4 and len(blocks) == 4
    for depth in range(4, 0, -1):
        found = warm(cache_over(engine, disk(tmp_path), loader), LONG)
        assert found.report.prefix_tokens == depth * BLOCK - len(SYSTEM)
        assert found.report.cached == depth * BLOCK
        assert not found.report.incidents
        assert same_bits(found, expected)
        cache.store.delete(blocks[depth - 1].key)
    assert same_bits(warm(cache_over(engine, disk(tmp_path), loader), LONG), expected)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 31, 33, 100, 127, 128, 129])
def test_whatever_is_left_to_compute(engine: TorchEngine, tmp_path: Path, count: int) -> None:
    prompt = [SYSTEM, text(3 * BLOCK - len(SYSTEM) + count, 1)]
    cache = kept(engine, tmp_path, prompt)
    found, expected = warm(cache, prompt), warm(cold(engine), prompt)
    assert found.report.prefix_tokens == (3 if count >= 16 else 2) * BLOCK - len(SYSTEM)
    assert same_bits(found, expected)


def test_a_long_prompt_in_several_passes(engine: TorchEngine, tmp_path: Path) -> None:
    prompt = [SYSTEM, text(1700, 2)]
    cache = kept(engine, tmp_path, prompt)
    expected = warm(cold(engine), prompt)
    for _ in range(3):
        found = warm(cache, prompt)
        assert found.report.prefix_tokens
        assert same_bits(found, expected)
        cache.store.delete(blocks_of(cache, prompt)[found.report.prefix_tokens // BLOCK - 5].key)


@pytest.mark.parametrize("place", [0, 100, 101, 102, 228, 229, 500, 626])
def test_a_changed_earlier_token_leaves_what_precedes_it(engine: TorchEngine, tmp_path: Path, place: int) -> None:
    cache = kept(engine, tmp_path, LONG)
    ids = list(LONG[1].ids)
    if place >= len(SYSTEM):
        ids[place - len(SYSTEM)] = (ids[place - len(SYSTEM)] + 1) % 199
        system = SYSTEM
    else:
        system = System((SYSTEM.ids[0] + 1, *SYSTEM.ids[1:]))
    found = warm(cache, [system, Text(tuple(ids))])
    assert found.report.prefix_tokens == max(0, min(place, 4 * BLOCK) // BLOCK * BLOCK - len(SYSTEM))
    assert same_bits(found, warm(cold(engine), [system, Text(tuple(ids))]))


def test_segments_may_be_cut_otherwise(engine: TorchEngine, tmp_path: Path) -> None:
    cache = kept(engine, tmp_path, LONG)
    cut = [SYSTEM, Text(LONG[1].ids[:150]), Text(LONG[1].ids[150:170]), Text(LONG[1].ids[170:])]
    found = warm(cache, cut)
    assert found.report.prefix_tokens == 4 * BLOCK - len(SYSTEM)
    assert same_bits(found, warm(cold(engine), LONG))


def test_without_a_system_segment(engine: TorchEngine, tmp_path: Path) -> None:
    prompt = [text(300, 3), text(50, 4)]
    cache = kept(engine, tmp_path, prompt)
    found = warm(cache, prompt)
    assert found.report.prefix_tokens == 2 * BLOCK
    assert same_bits(found, warm(cold(engine), prompt))


def test_behind_exact_chunks_they_begin_where_these_end(engine: TorchEngine, tmp_path: Path, loader: Loader) -> None:
    cache = cache_over(engine, disk(tmp_path))
    list(cache.ingest(SYSTEM, DOCUMENT))
    prompt = [SYSTEM, *DOCUMENT[:2], text(300, 5)]
    for _ in range(2):
        list(cache.generate(prompt, max_tokens=2))
    assert stored(cache, prompt) == [False, True, True, True], "the first is served by chunks"
    found = warm(cache_over(engine, disk(tmp_path), loader), prompt)
    assert [chunk.tier for chunk in found.report.chunks] == ["disk"] * 2
    assert found.report.prefix_tokens == 4 * BLOCK - len(SYSTEM) - 220
    assert same_bits(found, warm(cold(engine, *DOCUMENT), prompt))


def test_chunks_within_it_are_not_loaded_beside_it(engine: TorchEngine, tmp_path: Path) -> None:
    """As after their own KV was evicted, or where they were computed as plain text of a conversation."""
    prompt = [SYSTEM, *DOCUMENT[:2], text(300, 5)]
    kept(engine, tmp_path, [SYSTEM, Text(tuple(token for one in prompt[1:] for token in one.ids))])
    cache = ChunkCache(engine, disk(tmp_path), "naive", keep_missed=False)
    found = warm(cache, prompt)
    assert [(chunk.tier, chunk.reused, chunk.exact) for chunk in found.report.chunks] == [
        (PREFIX, 90, True),
        (PREFIX, 130, True),
    ]
    assert found.report.computed == 0
    assert same_bits(found, warm(cold(engine), [SYSTEM, Text(tuple(t for one in prompt[1:] for t in one.ids))]))


@pytest.mark.parametrize("linker", ["naive", "auto", "fast", "cacheblend", "cci:ratio=1"])
def test_it_may_end_amid_a_chunk(engine: TorchEngine, tmp_path: Path, linker: str) -> None:
    """Of which the rest is linked: with all of it computed again, the prompt is what a prefill holds."""
    before, strange = text(180, 6), DOCUMENT[2]
    ids = (*before.ids, *strange.ids, *draw(40, 77))
    kept(engine, tmp_path, [SYSTEM, Text(ids)])
    cache = cache_over(engine, disk(tmp_path))
    list(cache.ingest(SYSTEM, DOCUMENT))
    prompt = [SYSTEM, before, strange, text(30, 7)]
    report = prefill_prompt(cache, prompt, linker).report
    (chunk,) = report.chunks
    assert report.prefix_tokens == 2 * BLOCK - len(SYSTEM)
    assert report.prefix_tokens < len(before) + len(strange)
    assert chunk.tier == "disk"
    assert chunk.repaired <= len(SYSTEM) + len(before) + len(strange) - 2 * BLOCK, "never what is exact"
    if linker == "cci:ratio=1":
        whole, plain = prefill_prompt(cache, prompt, linker), prefill_prompt(cold(engine), prompt, "full")
        torch.testing.assert_close(whole.logits, plain.logits, rtol=0, atol=1e-3)


def test_the_null_linker_looks_nothing_up(engine: TorchEngine, tmp_path: Path) -> None:
    cache = kept(engine, tmp_path, LONG)
    assert prefill_prompt(cache, LONG, "full").report.prefix_tokens == 0


@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_whatever_the_codec_it_is_kept_without_a_loss(engine: TorchEngine, tmp_path: Path, codec: str) -> None:
    cache = kept(engine, tmp_path, LONG, codec)
    assert all(info.lossless for block in blocks_of(cache, LONG) for info in cache.store.variants(block.key.family))
    assert same_bits(warm(cache_over(engine, disk(tmp_path, codec)), LONG), warm(cold(engine), LONG))


def test_a_slow_disk_costs_no_more_than_computing(engine: TorchEngine, tmp_path: Path) -> None:
    kept(engine, tmp_path, LONG)

    class SlowDisk(Rates):
        def load_seconds(self, tier: str, nbytes: int, reads: int = 1) -> float:
            return 1e6

    found = warm(ChunkCache(engine, disk(tmp_path), "naive", rates=SlowDisk()), LONG)
    assert (found.report.prefix_tokens, found.report.declined) == (0, 4 * BLOCK - len(SYSTEM))


class Steady(Rates):
    """On a machine that is always as quick, and a disk that is slow where it is `told`."""

    def __init__(self, load_seconds: float = 0.0):
        super().__init__()
        self._load = load_seconds

    def observe(self, work: Work, seconds: float) -> None: ...

    def load_seconds(self, tier: str, nbytes: int, reads: int = 1) -> float:
        return reads * self._load


@pytest.mark.parametrize("near", [True, False])
def test_exact_chunks_before_it_are_not_declined_for_it(
    engine: TorchEngine, tmp_path: Path, near: bool, loader: Loader
) -> None:
    """All that is left to compute is the question: without the chunks it would be they as well."""
    cache = cache_over(engine, disk(tmp_path))
    list(cache.ingest(SYSTEM, DOCUMENT))
    prompt = [SYSTEM, *DOCUMENT, text(300, 5)]
    for _ in range(2):
        list(cache.generate(prompt, max_tokens=2))
    store = open_store(tmp_path, codec="raw") if near else disk(tmp_path)
    rated = ChunkCache(engine, store, "auto", rates=Steady(), loader=loader)
    for _ in range(2):  # from the disk, then perhaps from RAM
        found = warm(rated, prompt)
        assert [chunk.exact for chunk in found.report.chunks] == [True] * 4
        assert found.report.declined == 0
        assert found.report.prefix_tokens == 5 * BLOCK - len(SYSTEM) - 355
    slow = warm(ChunkCache(engine, disk(tmp_path), "auto", rates=Steady(1e6)), prompt).report
    assert {chunk.tier for chunk in slow.chunks} == {COMPUTED}
    assert (slow.prefix_tokens, slow.declined) == (0, 5 * BLOCK - len(SYSTEM))


# -- what is wrong with a file ---------------------------------------------------------------------------------------


def file_of(folder: Path, key) -> Path:
    return next(folder.rglob(f"{key.digest}.kv"))


@pytest.mark.parametrize("place", range(4))
def test_a_torn_block_is_computed(engine: TorchEngine, tmp_path: Path, loader: Loader, place: int) -> None:
    """As the front that it belongs to, so those behind it hold; from the next prompt on it is a hole."""
    cache = kept(engine, tmp_path, LONG)
    block, expected = blocks_of(cache, LONG)[place], warm(cold(engine), LONG)
    path = file_of(tmp_path, block.key)
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    other = cache_over(engine, disk(tmp_path), loader)
    found = warm(other, LONG)
    assert same_bits(found, expected)
    assert "does not match its checksum" in found.report.incidents[0]
    assert found.report.prefix_tokens == 3 * BLOCK - (len(SYSTEM) if place else 0)
    found = warm(cache_over(engine, disk(tmp_path), loader), LONG)
    assert found.report.prefix_tokens == max(0, place * BLOCK - len(SYSTEM)), "up to the hole"
    assert same_bits(found, expected)


def test_a_file_of_other_ids_under_its_name_is_refused(engine: TorchEngine, tmp_path: Path) -> None:
    cache = kept(engine, tmp_path, LONG)
    other = [SYSTEM, text(600, 8)]
    mine = blocks_of(kept(engine, tmp_path, other), other)[1]
    block = blocks_of(cache, LONG)[1]
    shutil.copy(file_of(tmp_path, mine.key), file_of(tmp_path, block.key))
    found = warm(cache_over(engine, disk(tmp_path)), LONG)
    assert any("holds" in told for told in found.report.incidents)
    assert same_bits(found, warm(cold(engine), LONG))


def test_kv_of_the_same_ids_behind_others_is_another_block(engine: TorchEngine) -> None:
    """And neither a chunk's, whose K is not turned, nor one of another engine."""
    name = engine.spec.fingerprint
    first, second = (list(addresses([SYSTEM, text(200, seed), text(200, 9)], name)) for seed in (1, 2))
    assert not {one.key.digest for one in first} & {one.key.digest for one in second}
    assert not {one.key for one in first} & {one.key for one in addresses([SYSTEM, text(200, 1), text(200, 9)], "b")}
    assert {one.key.fingerprint for one in first} != {name}


def test_a_block_serves_no_chunk_of_its_ids(engine: TorchEngine, tmp_path: Path) -> None:
    cache = kept(engine, tmp_path, LONG)
    ids = tuple(token for one in LONG for token in one.ids)
    chunk = Chunk(ids[BLOCK : 2 * BLOCK])
    report = prefill_prompt(cache, [make_system(BLOCK), chunk, text(20, 3)]).report
    assert report.chunks[0].tier == COMPUTED
    assert prefill_prompt(cache, [System(ids[:BLOCK]), chunk, text(20, 3)]).report.chunks[0].tier == PREFIX
