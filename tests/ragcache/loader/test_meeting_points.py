"""Wherever computing and loading meet, the KV is that of a plain loader which leaves the same front to be computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.engine.torch.generation import Prefilled
from ragcache.loader import Loading, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.rates import Rates
from ragcache.report import COMPUTED
from ragcache.store.base import KVStore
from ragcache.types import Segment
from tests.codecs import CODEC_ROWS
from tests.cold_prompts import (
    ALL,
    ANSWER,
    DOCUMENT,
    LEAD,
    LIMIT_S,
    QUESTION,
    Gate,
    answer_of,
    ingested,
    met,
    over,
)
from tests.cold_prompts import prompt as cold
from tests.tiny import Tiny, make_chunks

CONTEXT = 3
EXACT, LINKED = tuple(range(ALL)), (3, 0, 5, 1, 7)
STRANGERS = make_chunks(9, 23, seed=9)


@pytest.fixture(scope="module")
def threads() -> Iterator[DiskThreads]:
    """One, so that pieces pass a gate in their order."""
    made = DiskThreads(1, "test-cake", LIMIT_S)
    yield made
    made.close()


@pytest.fixture(scope="module")
def stores(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], KVStore]:
    """By codec and the chunks that each was computed behind."""
    return {
        (codec, context): ingested(tiny, tmp_path_factory.mktemp(codec), context, codec)
        for codec in CODEC_ROWS
        for context in (CONTEXT, ALL)
    }


class PatientLoader(CakeLoader):
    """Nothing is computed before the gate is shut; from then on all that does not come is, whatever that takes."""

    def __init__(self, threads: DiskThreads, gate: Gate):
        super().__init__(threads, pace=gate)
        self._gate = gate

    def begin(
        self, pieces: Sequence[SegmentPiece], store: KVStore, rates: Rates | None = None, linking: float = 0.0
    ) -> Loading:
        loading, gate = super().begin(pieces, store, rates), self._gate
        claim = loading.claim

        def patient(piece: SegmentPiece, seconds: float, *, final: bool = True, until: int | None = None) -> bool:
            return gate.shut.is_set() and claim(piece, 0.0, final=final, until=until)

        loading.claim = patient  # type: ignore[method-assign]
        return loading


def made_with(tiny: Tiny, cache: ChunkCache, segments: Sequence[Segment], linker: str) -> tuple[Prefilled, list[int]]:
    made = prefill_prompt(cache, segments, linker, ANSWER)
    return made, answer_of(tiny, cache, segments, made)


def assert_same_as_plain(
    tiny: Tiny, store: KVStore, threads: DiskThreads, segments: Sequence[Segment], linker: str, loaded: int
) -> Prefilled:
    """`loaded`: so many pieces come, and no more."""
    gate = Gate(loaded)
    try:
        made, tokens = made_with(tiny, over(tiny, store, PatientLoader(threads, gate)), segments, linker)
    finally:
        gate.opened.set()
    found = zip(made.plan.chunks, made.report.chunks, strict=True)
    passed = [planned.index for planned, told in found if planned.candidates and told.tier == COMPUTED]
    front = passed[-1] + 1 if passed else 0  # what nobody has may stand amid it
    system = made.report.system_tier == COMPUTED
    plain = over(tiny, store, SequentialLoader(front=front, system=system))
    expected, answer = made_with(tiny, plain, segments, linker)
    end = len(made.plan.ids)
    assert torch.equal(made.logits, expected.logits)
    assert torch.equal(made.buffer.k[:, :, :end], expected.buffer.k[:, :, :end])
    assert torch.equal(made.buffer.v[:, :, :end], expected.buffer.v[:, :, :end])
    assert tokens == answer
    assert made.report.chunks == expected.report.chunks
    assert made.report.repaired == expected.report.repaired
    return made


@pytest.mark.parametrize("codec", CODEC_ROWS)
@pytest.mark.parametrize(
    ("context", "places", "linker"),
    [
        (ALL, EXACT, "naive"),
        (CONTEXT, EXACT, "cci:ratio=0.5"),
        (CONTEXT, LINKED, "naive"),
        (CONTEXT, LINKED, "auto:ratio=0.2"),
        (CONTEXT, LINKED, "cacheblend:ratio=0.3"),
    ],
)
def test_every_meeting_point_is_that_of_the_plain_loader(
    tiny: Tiny,
    stores: dict[tuple[str, int], KVStore],
    threads: DiskThreads,
    codec: str,
    context: int,
    places: tuple[int, ...],
    linker: str,
) -> None:
    fronts = set[int]()
    for loaded in range(len(places) + 2):
        made = assert_same_as_plain(tiny, stores[codec, context], threads, cold(*places), linker, loaded)
        fronts.add(met(made))
        assert context != ALL or all(chunk.exact for chunk in made.report.chunks if chunk.tier == "disk")
    assert fronts == set(range(len(places) + 1)), "each was met at"


@settings(max_examples=30)
@given(
    codec=st.sampled_from(list(CODEC_ROWS)),
    middle=st.lists(st.sampled_from([*DOCUMENT, *STRANGERS]), min_size=1, max_size=6, unique=True),
    linker=st.sampled_from(["naive", "auto:ratio=0.2", "first_tokens:k=3"]),
    loaded=st.integers(0, 7),
)
def test_whatever_stands_in_the_prompt(
    tiny: Tiny,
    stores: dict[tuple[str, int], KVStore],
    threads: DiskThreads,
    codec: str,
    middle: list[Segment],
    linker: str,
    loaded: int,
) -> None:
    segments = [LEAD, *middle, QUESTION]
    assert_same_as_plain(tiny, stores[codec, CONTEXT], threads, segments, linker, loaded)
