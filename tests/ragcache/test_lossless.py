"""What was lost at rest is never taken for exact, whichever process reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.loader import Loading, SegmentPiece
from ragcache.loader.sequential import SequentialLoader
from ragcache.planning import plan_prompt
from ragcache.policy import Rates
from ragcache.store import DiskTier, KVStore, RamTier, open_store
from ragcache.store.codec import CODECS, open_codec
from ragcache.store.tiered import TieredStore
from ragcache.types import Segment
from tests.rounding import keep_rounded, rounded
from tests.tiny import Tiny, make_chunks, make_question, make_system

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(20, 31, 18)
(STRANGER,) = make_chunks(27, seed=5)


def cache_over(tiny: Tiny, store: KVStore, linker: str = "naive") -> ChunkCache:
    return ChunkCache(tiny.engine, store, linker, keep_missed=False)


def ingested(tiny: Tiny, root: Path, codec: str) -> None:
    """A folder whose KV this codec has rounded, that of System too."""
    cache = cache_over(tiny, open_store(codec="raw"))
    variants = list(cache.ingest(SYSTEM, DOCUMENT))
    keep_rounded(open_store(root, ram_bytes=0, codec="raw"), [cache.system_variant(SYSTEM), *variants], codec)


def exact(cache: ChunkCache, middle: Sequence[Segment] = DOCUMENT) -> list[bool]:
    return [chunk.exact for chunk in prefill_prompt(cache, [SYSTEM, *middle, QUESTION]).report.chunks]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reader", CODECS)
def test_the_entry_tells_not_the_store_that_reads_it(tiny: Tiny, tmp_path: Path, codec: str, reader: str) -> None:
    expected = open_codec(codec).lossless(torch.float32)  # in which the engine computes
    ingested(tiny, tmp_path, codec)
    assert exact(cache_over(tiny, open_store(tmp_path, ram_bytes=0, codec=reader))) == [expected] * 3


def test_what_is_captured_behind_a_lossy_system_is_lossy(tiny: Tiny, tmp_path: Path) -> None:
    """However it is stored itself."""
    store = open_store(tmp_path, ram_bytes=0, codec="int8")
    kvgen = cache_over(tiny, store).kvgen
    system = rounded(kvgen.system(SYSTEM), "int8")
    for variant in (system, *kvgen.ingest(system, DOCUMENT)):
        store.put(variant)
        found = store.get(variant.key)
        assert found is not None
        assert found.variant.lineage.lost == ("int8",)
    assert exact(cache_over(tiny, open_store(tmp_path, ram_bytes=0, codec="raw"))) == [False] * 3


def test_a_rounded_system_is_computed_again_by_the_next_ingest(tiny: Tiny, tmp_path: Path) -> None:
    """Or nothing in an old folder would ever be exact."""
    ingested(tiny, tmp_path, "int8")
    cache = cache_over(tiny, open_store(tmp_path, ram_bytes=0, codec="int8"))
    assert all(variant.lossless for variant in cache.ingest(SYSTEM, DOCUMENT))
    assert exact(cache_over(tiny, open_store(tmp_path, ram_bytes=0, codec="int8"))) == [True] * 3


def test_it_is_tried_once(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may not be able to keep it."""
    ingested(tiny, tmp_path, "int8")
    cache = cache_over(tiny, open_store(tmp_path, ram_bytes=0, codec="raw"))
    monkeypatch.setattr(cache.store, "put", lambda variant, wanted: False)
    assert [cache.system_variant(SYSTEM).lossless for _ in range(3)] == [True, False, False]


def test_what_is_captured_behind_a_lossy_chunk_is_lossy(tiny: Tiny, tmp_path: Path) -> None:
    store = open_store(tmp_path, ram_bytes=0, codec="raw")
    cache = cache_over(tiny, store)
    first, _, _ = cache.ingest(SYSTEM, DOCUMENT)
    store.put(rounded(first, "int8"))
    found = store.get(first.key)
    assert found is not None
    assert not found.variant.lossless
    behind = cache.kvgen.capture(cache.system_variant(SYSTEM), [found.variant], STRANGER)
    assert behind.lineage.lost == ("int8",)
    assert cache.kvgen.capture(cache.system_variant(SYSTEM), [first], STRANGER).lossless


def test_behind_a_lossy_system_nothing_is_exact(tiny: Tiny, tmp_path: Path) -> None:
    """Though the chunks' own KV is that of a prefill."""
    ingested(tiny, tmp_path, "raw")
    store = open_store(tmp_path, ram_bytes=0, codec="raw")
    system = cache_over(tiny, store).system_variant(SYSTEM)
    store.put(rounded(system, "int8"))
    assert exact(cache_over(tiny, store)) == [False] * 3
    found = plan_prompt([SYSTEM, *DOCUMENT, QUESTION], tiny.engine.spec.fingerprint, store)
    assert (found.system_exact, found.exact_until) == (False, 0)


@pytest.mark.parametrize("lost", ["system", "first chunk"])
def test_the_copy_that_was_placed_tells(tiny: Tiny, tmp_path: Path, lost: str) -> None:
    """The RAM held what was computed when it was planned; what is loaded a moment later comes from the disk."""
    ram, disk = RamTier(None), DiskTier(tmp_path, None, "raw")
    cache = cache_over(tiny, TieredStore(ram, disk))
    variants = list(cache.ingest(SYSTEM, DOCUMENT))
    keep_rounded(disk, [cache.system_variant(SYSTEM), *variants], "int8")
    leaving = cache.kvgen.system_key(SYSTEM) if lost == "system" else variants[0].key

    class LateLoader(SequentialLoader):
        def begin(
            self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
        ) -> Loading:
            assert ram.delete(leaving)
            return super().begin(pieces, store, rates)

    late = ChunkCache(tiny.engine, cache.store, "naive", keep_missed=False, loader=LateLoader())
    made = prefill_prompt(late, [SYSTEM, *DOCUMENT, QUESTION])
    assert [chunk.candidates[0].exact for chunk in made.plan.chunks] == [True] * 3
    assert made.plan.exact_until == made.plan.question
    expected = [False] * 3 if lost == "system" else [False, True, True]
    assert [chunk.exact for chunk in made.report.chunks] == expected


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_prefill_would_hold_is_kept_as_it_is(tiny: Tiny, tmp_path: Path, codec: str) -> None:
    """Whatever the codec: System, the lead of each chunk, and chunks that saw all that stands before them."""
    cache = cache_over(tiny, open_store(tmp_path, ram_bytes=0, codec=codec))
    cache.kvgen.context_chunks = 2
    *opening, late = cache.ingest(SYSTEM, [*DOCUMENT, STRANGER])
    kept = open_store(tmp_path, ram_bytes=0, codec="raw")
    lost = [kept.get(one.key).variant.lineage.lost for one in (cache.system_variant(SYSTEM), *opening, late)]  # type: ignore[union-attr]
    assert lost[:-1] == [()] * 4
    assert lost[-1] == (() if open_codec(codec).lossless(torch.float32) else (codec,))
    assert exact(cache_over(tiny, kept), [*DOCUMENT, STRANGER]) == [True, True, True, False]


def test_rounding_is_no_reason_to_repair(tiny: Tiny, tmp_path: Path) -> None:
    """No linker mends it, and nothing else is wrong behind the chunks that a chunk was computed behind."""
    ingested(tiny, tmp_path, "int8")
    cache = cache_over(tiny, open_store(tmp_path, ram_bytes=0, codec="int8"), "boundary")
    report = prefill_prompt(cache, [SYSTEM, *DOCUMENT, QUESTION]).report
    assert [chunk.exact for chunk in report.chunks] == [False] * 3
    assert report.repaired == 0


def test_a_lead_variant_that_was_rounded_is_not_captured_again(tiny: Tiny, tmp_path: Path) -> None:
    ingested(tiny, tmp_path, "int8")
    cache = ChunkCache(tiny.engine, open_store(tmp_path, ram_bytes=0, codec="int8"), "naive")
    answer = cache.generate([SYSTEM, *DOCUMENT, QUESTION], max_tokens=1)
    list(answer)
    assert "keep" not in answer.report.seconds


def test_bfloat16_keeps_what_a_bfloat16_engine_computed() -> None:
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    assert [open_codec("bf16").lossless(dtype) for dtype in dtypes] == [False, False, True]
