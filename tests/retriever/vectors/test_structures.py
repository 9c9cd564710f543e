"""What every structure must do, held against a comparison with each vector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import IntArray, RetrieverError, Vectors
from retriever.vectors import FLAT_UP_TO, HNSW_UP_TO, STRUCTURES, choose, ivf
from retriever.vectors.base import EXACT_UP_TO, MISSING, Structure, load_faiss, selector
from retriever.vectors.hnsw import Hnsw
from tests.retriever.chunks import DIMENSION, brute_force, found, recall, unit

MANY = 6000  # more than are compared one by one
LEAST_RECALL = {"flat": 1.0, "hnsw": 0.97, "ivf": 0.97}


def built(name: str, count: int = MANY, step: int = 3) -> tuple[Structure, IntArray, Vectors]:
    ids, vectors = np.arange(1, count * step, step, dtype=np.int64), unit(count)
    return STRUCTURES[name].build(ids, vectors), ids, vectors


def mean_recall(structure: Structure, kept: IntArray, vectors: Vectors, allowed: IntArray | None) -> float:
    """Against brute force among the kept."""
    queries = unit(40, seed=1)
    ids, _ = structure.search(queries, 10, allowed)
    pairs = zip(ids, queries, strict=True)
    return float(np.mean([recall(found(row), brute_force(kept, vectors, query, 10)) for row, query in pairs]))


@pytest.mark.parametrize("name", STRUCTURES)
def test_it_finds_what_brute_force_finds(name: str) -> None:
    structure, ids, vectors = built(name)
    assert mean_recall(structure, ids, vectors, None) >= LEAST_RECALL[name]


@pytest.mark.parametrize("name", STRUCTURES)
def test_scores_are_cosines_and_the_best_comes_first(name: str) -> None:
    structure, ids, vectors = built(name, 500)
    found_ids, scores = structure.search(vectors[7:8], 5, None)
    assert found_ids[0, 0] == ids[7]
    assert (np.diff(scores[0]) <= 0).all()
    np.testing.assert_allclose(scores[0], vectors[np.searchsorted(ids, found_ids[0])] @ vectors[7], atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("part", [2, 5, 100, 2000])
def test_a_filter_gives_the_best_of_the_allowed(name: str, part: int) -> None:
    structure, ids, vectors = built(name, MANY * 2)
    kept = ids % part == 0
    allowed = np.arange(0, ids[-1] + 1000, part, dtype=np.int64)  # most are not there
    assert mean_recall(structure, ids[kept], vectors[kept], allowed) >= LEAST_RECALL[name]


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("count", [5, EXACT_UP_TO + 1])
def test_a_filter_gives_k_where_k_are_there(name: str, count: int) -> None:
    """Those farthest from the query: neither the lists nor the graph near it lead there."""
    structure, ids, vectors = built(name, MANY * 2)
    farthest = ids[np.argsort(vectors @ vectors[0])[:count]]
    result, _ = structure.search(vectors[:1], 50, np.sort(farthest))
    assert len(set(found(result))) == min(count, 50)
    assert set(found(result)) <= set(farthest.tolist())


@pytest.mark.parametrize("name", STRUCTURES)
def test_ids_far_apart_are_filtered_too(name: str) -> None:
    ids = np.arange(1, MANY + 1, dtype=np.int64) << 40
    structure = STRUCTURES[name].build(ids, unit(MANY))
    allowed = ids[: EXACT_UP_TO + 500]
    result, _ = structure.search(unit(1, seed=1), 10, allowed)
    truth = brute_force(allowed, unit(MANY)[: len(allowed)], unit(1, seed=1)[0], 10)
    assert recall(found(result), truth) >= 0.9


@pytest.mark.parametrize("name", STRUCTURES)
def test_what_is_removed_is_not_found(name: str) -> None:
    structure, ids, vectors = built(name)
    gone = ids[::2]
    structure.remove(gone)
    np.testing.assert_array_equal(structure.ids, ids[1::2])
    assert mean_recall(structure, ids[1::2], vectors[1::2], None) >= LEAST_RECALL[name]
    result, _ = structure.search(vectors[:1], 10, ids)
    assert not set(found(result)) & set(gone.tolist())


@pytest.mark.parametrize("name", ["flat", "hnsw"])  # which keep vectors as they are
def test_what_is_removed_is_in_no_file(name: str, tmp_path: Path) -> None:
    structure, ids, vectors = built(name)
    for part in range(4):  # what one of them leaves is of a neighbour, which goes later
        structure.remove(ids[::5][part::4])
    structure.write(tmp_path / "file")
    written = (tmp_path / "file").read_bytes()
    assert all(one.tobytes() in written for one in vectors[1::5])
    assert not any(one.tobytes() in written for one in vectors[::5])


def test_a_graph_that_was_written_with_its_dead_loses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    structure, ids, vectors = built("hnsw")
    with monkeypatch.context() as patch:
        patch.setattr(Hnsw, "_erase", lambda _: None)
        structure.remove(ids[:9])
    for told in (True, False):
        structure.write(tmp_path / "file")
        assert (vectors[3].tobytes() in (tmp_path / "file").read_bytes()) is told
        structure = Hnsw.read(tmp_path / "file")


@pytest.mark.parametrize("name", STRUCTURES)
def test_an_id_can_be_given_another_vector(name: str) -> None:
    structure, ids, vectors = built(name, 300)
    structure.remove(ids[:1])
    structure.add(ids[:1], -vectors[:1])
    np.testing.assert_allclose(structure.vectors(ids[:1]), -vectors[:1], atol=1e-3)
    assert found(structure.search(-vectors[:1], 1, None)[0]) == [1]
    assert 1 not in found(structure.search(vectors[:1], 100, None)[0])


@pytest.mark.parametrize("name", STRUCTURES)
def test_more_than_there_are_is_marked(name: str) -> None:
    structure, ids, _ = built(name, 3)
    result, scores = structure.search(unit(2), 5, None)
    assert result.shape == scores.shape == (2, 5)
    assert sorted(found(result[0])) == ids.tolist()
    assert (result[:, 3:] == MISSING).all() and np.isneginf(scores[:, 3:]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURES)
def test_it_is_the_same_from_its_file(name: str, tmp_path: Path) -> None:
    structure, ids, vectors = built(name)
    structure.remove(ids[:100])
    structure.write(tmp_path / "file")
    again = STRUCTURES[name].read(tmp_path / "file")
    np.testing.assert_array_equal(again.ids, structure.ids)
    np.testing.assert_array_equal(again.vectors(ids[200:300]), structure.vectors(ids[200:300]))
    for one, other in zip(structure.search(vectors[:20], 10, None), again.search(vectors[:20], 10, None), strict=True):
        np.testing.assert_array_equal(one, other)
    again.remove(ids[100:200])
    again.add(ids[:100], vectors[:100])
    np.testing.assert_array_equal(again.ids, np.concatenate([ids[:100], ids[200:]]))


@pytest.mark.slow
@given(st.data())
def test_flat_equals_numpy(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    numbers = st.lists(st.integers(1, 10**12), min_size=count, max_size=count, unique=True)
    ids = np.array(sorted(data.draw(numbers)), dtype=np.int64)
    # Small whole numbers: products are exact, and many are equal.
    values = st.lists(st.integers(-3, 3), min_size=4, max_size=4)
    vectors = np.array(data.draw(st.lists(values, min_size=count, max_size=count)), dtype=np.float32)
    query = np.array([data.draw(values)], dtype=np.float32)
    allowed = np.array(sorted(data.draw(st.sets(st.sampled_from(ids.tolist())))), dtype=np.int64)
    structure = STRUCTURES["flat"].build(ids, vectors)
    for chosen in (None, allowed):
        k = data.draw(st.integers(1, 10))
        result, scores = structure.search(query, k, chosen)
        there = np.ones(count, bool) if chosen is None else np.isin(ids, chosen)
        expected = np.sort((vectors @ query[0])[there])[::-1][:k]
        np.testing.assert_array_equal(scores[0, : len(expected)], expected)
        assert len(found(result)) == len(expected)
        own = [float(vectors[ids == number][0] @ query[0]) for number in found(result)]
        assert own == expected.tolist(), "each id has its own score"


def test_hnsw_is_built_anew_when_much_of_it_is_dead() -> None:
    structure, ids, _ = built("hnsw", 400)
    structure.remove(ids[:100])
    assert not structure.outgrown()
    structure.remove(ids[100:101])
    assert structure.outgrown()


def test_ivf_is_built_anew_when_it_has_grown_fourfold() -> None:
    structure, ids, _ = built("ivf", 400)
    structure.add(ids + int(ids[-1]), unit(400))
    assert not structure.outgrown()
    structure.add(np.arange(900, dtype=np.int64) + 10_000, unit(900))
    assert structure.outgrown()


def test_the_size_chooses() -> None:
    sizes = (0, FLAT_UP_TO, FLAT_UP_TO + 1, HNSW_UP_TO, HNSW_UP_TO + 1)
    assert [choose("auto", size) for size in sizes] == ["flat", "flat", "hnsw", "hnsw", "ivf"]
    assert choose("ivf", 1) == "ivf"


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(RetrieverError, match="unknown vector index 'lsh': choose from auto, flat, hnsw, ivf"):
        choose("lsh", 1)


@pytest.mark.parametrize("ids", [[1, 5, 64], [1, 1 << 50], []])
def test_a_selector_has_its_members_alone(ids: list[int]) -> None:
    chosen = selector(np.array(ids, dtype=np.int64))
    assert [number for number in (0, 1, 2, 5, 63, 64, 65, 1 << 50) if chosen.is_member(number)] == ids


@pytest.mark.parametrize("name", STRUCTURES)
def test_its_bytes_are_those_of_faiss_and_of_its_ids(name: str) -> None:
    """FAISS's own, as it writes them, and a hash table that no file has."""
    structure, *_ = built(name)
    written = len(load_faiss().serialize_index(structure.index))
    assert written < structure.nbytes < written + 80 * MANY
    assert built(name, 10)[0].nbytes < structure.nbytes / 20


def test_the_dimension_is_of_the_vectors() -> None:
    assert built("ivf", 10)[0].dimension == DIMENSION


@pytest.fixture
def few_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small as these indexes are, a search would read all of their lists."""
    monkeypatch.setattr(ivf, "LEAST_VECTORS", 1)


def test_ivf_reads_a_part_of_its_lists(few_lists: None) -> None:
    structure, ids, vectors = built("ivf")
    assert 0.1 < mean_recall(structure, ids, vectors, None) < 0.9


def test_ivf_reads_more_lists_the_fewer_are_allowed(few_lists: None) -> None:
    structure, ids, vectors = built("ivf", MANY * 2)
    among_all = mean_recall(structure, ids, vectors, None)
    assert mean_recall(structure, ids[::2], vectors[::2], ids[::2]) > among_all + 0.05


def test_ivf_reads_all_lists_before_it_gives_too_few(few_lists: None) -> None:
    structure, ids, vectors = built("ivf", MANY * 2)
    farthest = np.sort(ids[np.argsort(vectors @ vectors[0])[: EXACT_UP_TO + 1]])
    result, _ = structure.search(vectors[:1], 50, farthest)
    assert len(found(result)) == 50
    everything, _ = structure.search(vectors[:1], len(ids), None)
    assert sorted(found(everything)) == ids.tolist()
