"""What the worker's side makes of orders, on a real engine."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ragcache.engine.vllm.link_worker import LinkWorker, file_loader
from ragcache.engine.vllm.orders import Answers, Capture, Load, Orders, Probe, PromptRows
from ragcache.loader import SegmentPiece
from ragcache.store import open_store
from ragcache.store.base import OpenEntry
from ragcache.store.ram import RamTier
from ragcache.types import Segment, Variant, VariantKey
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.loaders import ScatteredLoader
from tests.tiny import assert_close, draw, make_chunks, make_question, make_system

START, QUESTION, TOKENS = 100, 140, 200


def test_a_probe_reads_nothing_where_nothing_was_placed(open_pair: OpenPair) -> None:
    """What vLLM's prefix cache alone holds: the memory of the keys has held another prompt's."""
    with open_pair() as pair:
        (chunk,), spans, store = (
            make_chunks(QUESTION - START),
            pair.engine._worker.spans,
            open_store(codec="raw"),
        )
        *_, variant = pair.torch.ingest(make_system(), [chunk])
        store.put(variant)
        blocks = tuple(range(3, 3 + -(-TOKENS // spans.block_size)))
        spans.room(len(blocks) * spans.block_size).fill_(np.nan)
        worker = LinkWorker(spans, store)
        worker.obey(
            Orders(load=(Load("one", (SegmentPiece(0, START, (variant.key,)),), blocks, START, TOKENS),), idle=True)
        )
        while worker.busy:
            worker.obey(Orders(idle=True))
        rows = PromptRows(draw(TOKENS, 1)[QUESTION:], tuple(range(QUESTION, TOKENS)), blocks)
        worker.obey(Orders(probe=(Probe("one", rows, QUESTION, range(1, 2), "max"),)))
        answers = worker.take_answers()
        worker.close()
    assert answers is not None
    (probed,) = answers.probed
    assert np.isfinite(probed.attention).all()
    np.testing.assert_array_less(0, probed.attention[START:])


def test_a_program_that_ends_reads_no_more(open_pair: OpenPair, tmp_path: Path) -> None:
    """Its pools end first; a step that begins to load then must not break, or the program ends with a traceback."""
    with open_pair() as pair:
        (chunk,), store = make_chunks(QUESTION - START), open_store(tmp_path, ram_bytes=0, codec="raw")
        *_, variant = pair.torch.ingest(make_system(), [chunk])
        store.put(variant)
        worker = LinkWorker(pair.engine._worker.spans, store)
        worker.close()
        worker.obey(
            Orders(
                load=(Load("one", (SegmentPiece(0, START, (variant.key,)),), tuple(range(3, 10)), START, TOKENS),),
                idle=True,
            )
        )
        answers = worker.take_answers()
    assert answers is not None
    assert [loaded.piece.chosen for loaded in answers.loaded] == [None]


class HangingStore(RamTier):
    """As a disk of which a part does not answer until `gate` opens."""

    def __init__(self, hanging: set[str]):
        super().__init__(None)
        self.gate, self.asked = threading.Event(), threading.Event()
        self._hanging = hanging

    def at_hand(self, key: VariantKey) -> OpenEntry | None:
        return None

    def open(self, key: VariantKey) -> OpenEntry | None:
        if key.chunk in self._hanging:
            self.asked.set()
            self.gate.wait()
        return super().open(key)


def test_what_is_not_read_in_time_is_left_out_and_the_rest_is_kept(open_pair: OpenPair) -> None:
    """The time counts from the reading, not from the order: a forward lies between, which may take seconds."""
    with open_pair() as pair:
        system, chunks, now = make_system(), make_chunks(30, 40, 50), [0.0]
        store = HangingStore({chunks[1].hash})
        variants = list(pair.torch.ingest(system, chunks))
        for variant in variants:
            store.put(variant)
        pieces = tuple(
            SegmentPiece(place, start, (variant.key,))
            for place, (start, variant) in enumerate(zip((7, 37, 77), variants, strict=True))
        )
        worker = LinkWorker(pair.engine._worker.spans, store, file_loader(5.0, lambda: now[0]))
        now[0] = 1000.0  # a step took so long before this one
        worker.obey(Orders(load=(Load("one", pieces, tuple(range(3, 13)), 0, TOKENS),)))
        assert store.asked.wait(60)
        told = Answers()
        while len(told.loaded) < 2:
            worker.obey(Orders(idle=True))
            told = told.joined(worker.take_answers() or Answers())
        assert sorted((loaded.piece.index, loaded.piece.chosen) for loaded in told.loaded) == [(0, 0), (2, 0)]
        now[0] = 1005.0
        worker.obey(Orders(idle=True))
        assert (worker.take_answers() or Answers()).loaded == []
        assert worker.busy
        now[0] = 1005.1
        worker.obey(Orders())
        answers = worker.take_answers()
        store.gate.set()
        worker.close()
    assert answers is not None
    (late,) = answers.loaded
    assert (late.piece.index, late.piece.chosen) == (1, None)
    assert "not loaded in time" in late.piece.incidents[0]
    assert not worker.busy


@pytest.fixture
def captured(open_pair: OpenPair) -> dict[int, Variant]:
    """A chunk behind System and another one, captured in slices of so many tokens."""
    with open_pair() as pair:
        system, (context, chunk) = make_system(40), make_chunks(50, 61)
        kvgen = pair.torch.kvgen
        variants = [kvgen.system(system), *kvgen.ingest(kvgen.system(system), [context, chunk])]
        return {size: in_slices(pair, [system, context, chunk], variants, size) for size in (61, 60, 16, 7, 1)}


def in_slices(pair: Pair, segments: list[Segment], variants: list[Variant], size: int) -> Variant:
    spans, store = pair.engine._worker.spans, RamTier(None)
    for variant in variants[:-1]:
        store.put(variant)
    *before, chunk = segments
    start = sum(len(segment) for segment in before)
    blocks = tuple(range(3, 3 + -(-(start + len(chunk)) // spans.block_size)))
    pieces = (SegmentPiece(0, 0, (variants[0].key,)), SegmentPiece(1, len(before[0]), (variants[1].key,)))
    worker = LinkWorker(spans, store)
    worker.obey(Orders(load=(Load("one", pieces, blocks, 0, start + len(chunk)),), idle=True))
    while worker.busy:
        worker.obey(Orders(idle=True))
    for begin in range(0, len(chunk), size):
        positions = tuple(range(start + begin, start + min(begin + size, len(chunk))))
        rows = PromptRows(chunk.ids[begin : begin + size], positions, blocks)
        worker.obey(Orders(capture=(Capture("one", rows, chunk, start, variants[-1].key),)))
    answers = Answers()
    while not answers.stored:
        answers = answers.joined(worker.take_answers() or Answers())
    worker.close()
    assert answers.failed == answers.incidents == []
    found = store.get(variants[-1].key)
    assert found is not None
    assert_close(found.variant.k, variants[-1].k)
    assert_close(found.variant.v, variants[-1].v)
    return found.variant


def test_a_capture_in_slices_is_that_of_one_pass(captured: dict[int, Variant]) -> None:
    whole = captured.pop(61)
    for variant in captured.values():
        assert (variant.key, variant.ids) == (whole.key, whole.ids)
        assert_close(variant.k, whole.k, 1e-5)
        assert_close(variant.v, whole.v, 1e-5)
        for name in ("inter", "intra", "received"):
            np.testing.assert_allclose(
                getattr(variant.profile, name), getattr(whole.profile, name), rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("as it was placed", None),
        ("behind another context", "its key does not name what was placed"),
        ("behind another chunk", "does not stand right behind"),
    ],
)
def test_only_what_was_placed_is_named(open_pair: OpenPair, named: str, told: str | None) -> None:
    """Whatever the order says: the store holds nothing under a false address."""
    with open_pair() as pair:
        system, (first, second) = make_system(), make_chunks(20, 30)
        store, kvgen = open_store(codec="raw"), pair.torch.kvgen
        before = [kvgen.system(system)]
        before.append(kvgen.capture(before[0], [], first))
        for variant in before:
            store.put(variant)
        key = kvgen.capture(before[0], before[1:], second).key
        key = key if told is None or "key" not in told else replace(key, context=(second.hash,))
        starts = (0, len(system)) if told is None or "key" in told else (0,)
        pieces = tuple(SegmentPiece(place, start, (before[place].key,)) for place, start in enumerate(starts))
        worker, blocks = LinkWorker(pair.engine._worker.spans, store), tuple(range(3, 10))
        worker.obey(Orders(load=(Load("one", pieces, blocks, 0, 100),), idle=True))
        while worker.busy:
            worker.obey(Orders(idle=True))
        end = len(system) + len(first)
        rows = PromptRows(second.ids, tuple(range(end, end + len(second))), blocks)
        worker.obey(Orders(capture=(Capture("one", rows, second, end, key),)))
        answers = Answers()
        while not (answers.stored or answers.failed):
            answers = answers.joined(worker.take_answers() or Answers())
        worker.close()
    assert [one.request for one in answers.failed] == ["one"] * (told is not None)
    assert all(str(told) in one.reason for one in answers.failed)
    assert bool(store.variants(key.family)) is (told is None)


@pytest.mark.parametrize("linker", ["naive", "query:ratio=0.3"])
def test_blocks_may_come_in_any_order(open_pair: OpenPair, linker: str) -> None:
    with open_pair() as pair:
        document = make_chunks(20, 31, 18)
        list(pair.torch.ingest(make_system(), document))
        prompt: list[Segment] = [make_system(), *reversed(document), make_question()]
        answers = []
        for loader in (pair.engine._worker.loader, ScatteredLoader()):
            pair.engine.forget_prefixes()
            pair.engine._worker.loader = loader
            generation = pair.vllm.generate(prompt, max_tokens=6, linker=linker)
            answers.append((list(generation), generation.report.reused, generation.report.repaired))
    assert answers[0] == answers[1]
    assert answers[0][1] > 0
