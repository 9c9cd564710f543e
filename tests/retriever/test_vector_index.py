from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import retriever.vectors
from retriever import RetrieverError, vector_index
from retriever.vector_index import TEMPORARY_BYTES, VectorIndex
from retriever.vectors import STRUCTURES
from retriever.vectors.base import load_faiss
from tests.retriever.chunks import DIMENSION, brute_force, found, grow, source_of, unit


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes at which `auto` changes, in reach of a test."""
    monkeypatch.setattr(retriever.vectors, "FLAT_UP_TO", 100)
    monkeypatch.setattr(retriever.vectors, "HNSW_UP_TO", 200)


def test_it_grows_into_other_structures_and_back(small: None) -> None:
    source = source_of(100)
    index = VectorIndex(DIMENSION, "model")
    seen = []
    for change in (lambda: None, lambda: grow(source, 1), lambda: grow(source, 99), lambda: grow(source, 1)):
        change()
        index.catch_up(source)
        seen.append(index.structure)
    assert seen == ["flat", "hnsw", "hnsw", "ivf"]
    for keep, structure in ((150, "ivf"), (100, "hnsw"), (60, "hnsw"), (50, "flat"), (0, "flat")):
        live = source.live_ids({})
        source.retire(live[: len(live) - keep])
        index.catch_up(source)
        index.check_integrity()
        assert (index.structure, index.live) == (structure, keep)


def test_another_structure_asked_for_is_built_at_the_next_change(tmp_path: Path) -> None:
    source = source_of(100)
    for structure in STRUCTURES:
        index = VectorIndex(DIMENSION, "model", tmp_path, structure)
        index.catch_up(source)
        grow(source, 1)
        index.catch_up(source)
        index.save()
        assert index.structure == structure


def test_ids_are_those_of_brute_force() -> None:
    source = source_of(300)
    index = VectorIndex(DIMENSION, "model")
    index.catch_up(source)
    query, ids = unit(1, seed=1)[0], np.arange(1, 301)
    result, scores = index.search(query, 10)
    assert found(result) == brute_force(ids, unit(300), query, 10)
    np.testing.assert_allclose(scores[0], np.sort(unit(300) @ query)[::-1][:10], atol=1e-6)
    allowed = np.array([9, 3, 200, 9, 999])  # in no order, twice, and not there
    assert found(index.search(query, 10, allowed)[0]) == brute_force(allowed[:3], unit(300)[[8, 2, 199]], query, 10)


def test_an_empty_index_finds_nothing() -> None:
    ids, scores = VectorIndex(DIMENSION, "model").search(unit(2), 3)
    assert found(ids) == []
    assert ids.shape == scores.shape == (2, 3)


def test_vectors_come_in_the_order_asked_for() -> None:
    source = source_of(10)
    index = VectorIndex(DIMENSION, "model")
    index.catch_up(source)
    np.testing.assert_array_equal(index.vectors(np.array([7, 99, 1])), [unit(10)[6], np.zeros(DIMENSION), unit(10)[0]])
    assert index.vectors(np.array([], dtype=np.int64)).shape == (0, DIMENSION)


def test_what_cannot_be_searched_is_told() -> None:
    index = VectorIndex(DIMENSION, "model")
    with pytest.raises(RetrieverError, match="a query of 3 dimensions in an index of 16"):
        index.search(unit(1, dimension=3), 1)
    with pytest.raises(RetrieverError, match="ask for at least 1"):
        index.search(unit(1), 0)
    with pytest.raises(RetrieverError, match="unknown vector index 'tree'"):
        VectorIndex(DIMENSION, "model", structure="tree")


def test_another_model_or_dimension_makes_it_again(tmp_path: Path) -> None:
    source = source_of(10)
    index = VectorIndex(DIMENSION, "model", tmp_path)
    index.catch_up(source)
    index.save()
    other = VectorIndex(DIMENSION, "other", tmp_path)
    other.catch_up(source)
    assert other.save(), "the file of the other model was not used"


class Copies:
    """Stands in for the GPU: copies within memory."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, index: Any) -> Any:
        self.made += 1
        return load_faiss().clone_index(index)


@pytest.mark.parametrize("structure", ["flat", "ivf"])
def test_a_copy_on_the_gpu_answers_the_same(structure: str) -> None:
    source, copies = source_of(500), Copies()
    plain = VectorIndex(DIMENSION, "model", structure=structure)
    copied = VectorIndex(DIMENSION, "model", structure=structure, copier=copies)
    made = []
    for change in (lambda: None, lambda: grow(source, 10, seed=2), lambda: source.retire([1, 2]), lambda: None):
        change()
        for index in (plain, copied):
            index.catch_up(source)
        for one, other in zip(plain.search(unit(5), 10), copied.search(unit(5), 10), strict=True):
            np.testing.assert_array_equal(one, other)
        made.append(copies.made)
    assert made == [1, 1, 2, 2], "additions reach the copy, removals make it anew"
    allowed = np.arange(1, 400, 2)
    np.testing.assert_array_equal(plain.search(unit(1), 5, allowed)[0], copied.search(unit(1), 5, allowed)[0])
    assert copies.made == 2, "limited to some ids it is searched in memory"


def test_a_graph_is_not_copied_to_the_gpu() -> None:
    copies = Copies()
    index = VectorIndex(DIMENSION, "model", structure="hnsw", copier=copies)
    index.catch_up(source_of(50))
    index.search(unit(1), 5)
    assert copies.made == 0


class Failing(Copies):
    """A GPU that has no memory left for what `at` says."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def __call__(self, index: Any) -> Any:
        copy = super().__call__(index)
        if self.at == "copy":
            self.fail()
        return SimpleNamespace(**{name: self.fail if name == self.at else getattr(copy, name) for name in STEPS})

    def fail(self, *given: object, **named: object) -> None:
        raise RuntimeError("cudaMalloc error out of memory [2]\nOutstanding allocations: …")


STEPS = ("search", "add_with_ids")


@pytest.mark.parametrize("at", ["copy", *STEPS])
def test_what_the_gpu_fails_at_is_answered_in_memory(at: str, caplog: pytest.LogCaptureFixture) -> None:
    source, copies = source_of(50), Failing(at)
    plain, copied = VectorIndex(DIMENSION, "model"), VectorIndex(DIMENSION, "model", copier=copies)
    for change in (lambda: None, lambda: grow(source, 10, seed=2), lambda: source.retire([1, 2]), lambda: None):
        change()
        for index in (plain, copied):
            index.catch_up(source)
            index.check_integrity()
        for one, other in zip(plain.search(unit(5), 10), copied.search(unit(5), 10), strict=True):
            np.testing.assert_array_equal(one, other)
    assert copies.made == 1, "it is not tried again"
    (told,) = caplog.messages
    assert told == "a vector index is searched without the GPU from now on: cudaMalloc error out of memory [2]"


class Shared:
    """Stands in for FAISS's resources of a GPU."""

    made: ClassVar[list[Shared]] = []

    def __init__(self) -> None:
        self.made.append(self)
        self.bytes = 0
        self.users = self.most = 0

    def setTempMemory(self, size: int) -> None:  # FAISS's name
        self.bytes = size


class SharingCopy:
    """Counts who is in it beside others that share its resources."""

    def __init__(self, resources: Shared, index: Any) -> None:
        self._resources = resources
        self._copy = load_faiss().clone_index(index)

    def search(self, queries: Any, k: int) -> Any:
        self._resources.users += 1
        self._resources.most = max(self._resources.most, self._resources.users)
        answer = self._copy.search(queries, k)
        self._resources.users -= 1
        return answer


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Shared]]:
    faiss = load_faiss()
    with monkeypatch.context() as patched:
        patched.setattr(faiss, "StandardGpuResources", Shared, raising=False)
        patched.setattr(faiss, "get_num_gpus", lambda: 1, raising=False)
        patched.setattr(
            faiss, "index_cpu_to_gpu", lambda shared, device, index: SharingCopy(shared, index), raising=False
        )
        vector_index._gpu_resources.cache_clear()
        patched.setattr(Shared, "made", [])
        yield Shared.made
    vector_index._gpu_resources.cache_clear()


def test_all_indexes_share_little_memory_of_the_gpu_and_use_it_one_by_one(gpu: list[Shared]) -> None:
    indexes = [VectorIndex(DIMENSION, "model") for _ in range(6)]
    assert gpu == [], "none is taken before it is wanted"
    for index in indexes:
        index.catch_up(source_of(2000))
    queries = unit(200)
    with ThreadPoolExecutor(6) as threads:
        for ids, _ in threads.map(lambda number: indexes[number % 6].search(queries, 50), range(60)):
            assert ids.shape == (200, 50)
    (shared,) = gpu
    assert (shared.bytes, shared.most) == (TEMPORARY_BYTES, 1)


def test_a_copy_is_let_go_while_no_thread_uses_the_gpu(gpu: list[Shared]) -> None:
    indexes = [VectorIndex(DIMENSION, "model")]
    indexes[0].catch_up(source_of(50))
    indexes[0].search(unit(1), 5)
    assert indexes[0]._gpu is not None
    copy = weakref.ref(indexes[0]._gpu._copy)
    letting_go = threading.Thread(target=indexes.clear)
    with vector_index._GPU:
        letting_go.start()
        letting_go.join(0.5)
        assert copy() is not None
    letting_go.join()
    assert copy() is None


def test_whoever_has_no_copy_waits_for_no_other(gpu: list[Shared]) -> None:
    index = VectorIndex(DIMENSION, "model")
    adding = threading.Thread(target=lambda: index.catch_up(source_of(50)), daemon=True)
    with vector_index._GPU:
        adding.start()
        adding.join(30)
        assert not adding.is_alive() and index.live == 50
    assert gpu == []
