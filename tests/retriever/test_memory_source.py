from __future__ import annotations

import numpy as np
import pytest

from retriever import RetrieverError
from retriever.memory_source import MemorySource
from retriever.source import Position
from tests.retriever.chunks import DIMENSION, grow, source_of, unit


def test_ids_ascend_and_are_never_given_again() -> None:
    source = source_of(3)
    source.retire([3])
    assert grow(source, 2).tolist() == [4, 5]


def test_the_position_follows_every_change() -> None:
    source = MemorySource(DIMENSION)
    assert source.position() == Position(0, 0, 0)
    grow(source, 3)
    assert source.position() == Position(3, 0, 3)
    source.retire([3, 3, 99])
    assert source.position() == Position(3, 1, 2), "what is not there is not retired"


def test_added_gives_what_is_live_in_batches() -> None:
    source = source_of(5)
    source.retire([2])
    batches = list(source.added(0, batch=3))
    assert [ids.tolist() for ids, _, _ in batches] == [[1, 3, 4], [5]]
    assert batches[1][1] == source.texts([5])
    np.testing.assert_array_equal(batches[0][2], unit(5)[[0, 2, 3]])
    assert list(source.added(5)) == []


def test_the_log_of_retirements_is_numbered() -> None:
    source = source_of(5)
    source.retire([4, 1])
    assert source.retired(0) == [(1, 4), (2, 1)]
    assert source.retired(1) == [(2, 1)]


def test_live_ids_match_every_key() -> None:
    source = source_of(10)
    source.retire([1])
    assert source.live_ids({"group": [0, 2]}).tolist() == [3, 8, 10]
    assert len(source.live_ids({})) == 9


@pytest.mark.parametrize("where", [{"group": [7]}, {"language": ["en"]}, {"group": [0], "x": [1]}, {"group": []}])
def test_filters_that_can_match_nothing_are_refused(where: dict[str, list[object]]) -> None:
    with pytest.raises(RetrieverError, match=r"no chunk has|give a list of one value or more"):
        source_of(10).live_ids(where)


def test_vectors_of_another_shape_are_refused() -> None:
    with pytest.raises(RetrieverError, match=r"2 texts need vectors of shape \(2, 16\), not \(1, 16\)"):
        MemorySource(DIMENSION).add(["a", "b"], unit(1))
