"""What the worker's side makes of orders, on a real engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ragcache.engine.vllm.orders import Capture, Load, Orders, Piece, Probe, PromptRows
from ragcache.engine.vllm.working import LinkWorker
from ragcache.store import open_store
from tests.equivalence.vllm.conftest import OpenPair
from tests.tiny import draw, make_chunks, make_system

START, QUESTION, TOKENS = 100, 140, 200


def test_a_probe_reads_nothing_where_nothing_was_placed(open_pair: OpenPair) -> None:
    """What vLLM's prefix cache alone holds: the memory of the keys has held another prompt's."""
    with open_pair() as pair:
        (chunk,), spans, store = make_chunks(QUESTION - START), pair.engine.spans, open_store(None, None, None, "raw")
        *_, variant = pair.torch.ingest(make_system(), [chunk])
        store.put(variant)
        blocks = tuple(range(3, 3 + -(-TOKENS // spans.block_size)))
        spans.room(len(blocks) * spans.block_size).fill_(np.nan)
        worker = LinkWorker(spans, store)
        worker.obey(Orders(load=(Load("one", (Piece(0, START, (variant.key,)),), blocks, START, TOKENS),), idle=True))
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


def test_a_program_that_ends_reads_no_more(open_pair: OpenPair) -> None:
    """Its pools end first; a step that begins to load then must not break, or the program ends with a traceback."""
    with open_pair() as pair:
        (chunk,), store = make_chunks(QUESTION - START), open_store(None, None, None, "raw")
        *_, variant = pair.torch.ingest(make_system(), [chunk])
        store.put(variant)
        worker = LinkWorker(pair.engine.spans, store)
        worker.close()
        worker.obey(
            Orders(
                load=(Load("one", (Piece(0, START, (variant.key,)),), tuple(range(3, 10)), START, TOKENS),), idle=True
            )
        )
        answers = worker.take_answers()
    assert answers is not None
    assert [loaded.chosen for loaded in answers.loaded] == [None]


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
        store, kvgen = open_store(None, None, None, "raw"), pair.torch.kvgen
        before = [kvgen.system(system)]
        before.append(kvgen.capture(before[0], [], first))
        for variant in before:
            store.put(variant)
        key = kvgen.capture(before[0], before[1:], second).key
        key = key if told is None or "key" not in told else replace(key, context=(second.hash,))
        starts = (0, len(system)) if told is None or "key" in told else (0,)
        pieces = tuple(Piece(place, start, (before[place].key,)) for place, start in enumerate(starts))
        worker, blocks = LinkWorker(pair.engine.spans, store), tuple(range(3, 10))
        worker.obey(Orders(load=(Load("one", pieces, blocks, 0, 100),), idle=True))
        while worker.busy:
            worker.obey(Orders(idle=True))
        end = len(system) + len(first)
        rows = PromptRows(second.ids, tuple(range(end, end + len(second))), blocks)
        worker.obey(Orders(capture=(Capture("one", rows, key),)))
        answers = worker.take_answers()
        worker.close()
    assert answers is not None
    assert len(answers.told) == (told is not None)
    assert all(str(told) in one.incident for one in answers.told)
    assert bool(store.variants(key.family)) is (told is None)
