"""Algorithm 1, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ragcache.cache import ChunkCache
from ragcache.engine.vllm.block_names import link_name
from ragcache.linking import make_linker
from ragcache.linking.focus import LEAST
from ragcache.planning import plan_prompt
from ragcache.store import open_store
from tests.focus import Focus, focused_chunks, top_chunks
from tests.tiny import Tiny, make_chunks, make_question, make_system


def test_one_layer_by_hand() -> None:
    # Sorted 10, 8, 4, 3, 3 (chunks 2, 0, 4, 1, 3); gaps 2, 4, 1, 0; p = 2/7, 4/7, 1/7, 0.
    # h[2]-h[1] = -4/7·log(4/7) = .320, h[3]-h[2] = -1/7·log(1/7) = .278, h[4]-h[3] = 0: i* = 1.
    assert -4 / 7 * math.log(4 / 7) > -1 / 7 * math.log(1 / 7)
    assert top_chunks([8, 3, 10, 3, 4]) == {2}
    # Sorted 20, 19, 18, 10, 9; gaps 1, 1, 8, 1; p = 1/11, 1/11, 8/11, 1/11.
    # Steps .218, .232, .218: i* = 2.
    assert top_chunks([10, 20, 18, 9, 19]) == {1, 4}


def test_layers_are_cumulated_and_the_set_must_hold_for_the_window() -> None:
    # Sums, gaps and the two steps per layer:
    # 3, 2, 1, 1: 1 1 0, .347 and 0; 4, 7, 5, 2: 2 1 2, .322 and .367; 5, 12, 9, 3: 3 4 2, .360 and .334;
    # 6, 17, 13, 4: 4 7 2, .333 and .288; 7, 22, 17, 5: 5 10 2, .312 and .252.
    attention = np.asarray([[3, 2, 1, 1], *[[1, 5, 4, 1]] * 4], dtype=np.float32)
    tops = [top_chunks(row) for row in attention.cumsum(axis=0).tolist()]
    assert tops == [{0}, {1, 2}, {1}, {1}, {1}]
    assert focused_chunks(attention, window=1) == Focus(frozenset({0}), 1)
    assert focused_chunks(attention, window=2) == Focus(frozenset({1}), 4)
    assert focused_chunks(attention, window=3) == Focus(frozenset({1}), 5)


def test_what_never_settles_is_never_stopped() -> None:
    attention = np.asarray([[3, 2, 1, 1], [1, 5, 4, 1]], dtype=np.float32)
    assert focused_chunks(attention, window=2) == Focus(frozenset(range(4)), 2)
    assert focused_chunks(attention, window=9) == Focus(frozenset(range(4)), 2)


@pytest.mark.parametrize("scores", [[], [1.0], [5.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
def test_too_few_chunks_or_equal_ones_are_all_focused(scores: list[float]) -> None:
    assert top_chunks(scores) == set(range(len(scores)))


def test_a_focus_on_nothing_names_no_question(tiny: Tiny) -> None:
    """Where all is as it was computed nothing is narrowed, and whoever asks otherwise shares the link."""
    cache, document, system = (
        ChunkCache(tiny.engine, open_store(codec="raw")),
        make_chunks(9, 8, 7),
        make_system(),
    )
    list(cache.ingest(system, document))
    names = []
    for order in (document, document[::-1]):
        for question in (make_question(5), make_question(6)):
            plan = plan_prompt([system, *order, question], tiny.engine.spec.fingerprint, cache.store)
            assert len(plan.cached) == LEAST
            names.append(link_name(plan, make_linker("cci:focus=3"), 0).chain)
    assert names[0] == names[1]
    assert names[2] != names[3]
