from __future__ import annotations

import numpy as np
import pytest

from ragcache.linking.base import share, top, union


@pytest.mark.parametrize(
    ("ratio", "tokens", "count"),
    [(0.0, 10, 0), (0.01, 10, 1), (0.15, 200, 30), (0.1, 30, 3), (0.07, 100, 7), (1.0, 7, 7), (1.0, 0, 0)],
)
def test_share_rounds_up_but_not_for_float_noise(ratio: float, tokens: int, count: int) -> None:
    assert share(ratio, tokens) == count


def test_top_is_ascending_and_prefers_the_earlier_of_equals() -> None:
    assert top(np.asarray([1, 3, 2, 3, 3], dtype=np.float32), 2).tolist() == [1, 3]
    assert top(np.asarray([1, 3, 2], dtype=np.float32), 9).tolist() == [0, 1, 2]


def test_union_of_nothing_is_an_empty_selection() -> None:
    assert union([]).dtype == np.int64
    assert union([np.asarray([5, 2]), np.asarray([2, 3])]).tolist() == [2, 3, 5]
