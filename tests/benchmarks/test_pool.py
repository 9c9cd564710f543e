"""A pool: passages as a collection of short documents."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.models.loading import TorchModel
from benchmarks.corpus import sized_splitter
from benchmarks.data import read_dataset
from benchmarks.quality.measurement import run
from benchmarks.quality.pool import Pool, PoolArrangement, ordered
from ragcache.errors import ConfigError
from tests.benchmarks.conftest import letters
from tests.benchmarks.test_quality import options


def directions(count: int, dimension: int = 8) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    made = np.random.default_rng(3).standard_normal((count, dimension)).astype(np.float32)
    found: np.ndarray[tuple[int, int], np.dtype[np.float32]] = made / np.linalg.norm(made, axis=1, keepdims=True)
    return found


def test_near_texts_stand_beside_each_other() -> None:
    """Nearer than in the order that they came in, over several batches."""
    vectors = directions(300)
    arrangement = PoolArrangement(vectors)
    assert sorted(arrangement.standings) == list(range(300))
    order = sorted(range(300), key=lambda one: arrangement.places[one])
    beside = float((vectors[order[1:]] * vectors[order[:-1]]).sum(1).mean())
    assert beside > 0.4
    assert abs(float((vectors[1:] * vectors[:-1]).sum(1).mean())) < 0.1


def test_only_what_is_needed_is_computed() -> None:
    arrangement = PoolArrangement(directions(60))
    order = sorted(range(60), key=lambda one: arrangement.places[one])
    (run_of_one,) = arrangement.runs([order[4]])
    assert run_of_one[-1] == order[4]
    runs = arrangement.runs(order)
    assert {one for run in runs for one in run} == set(order)
    assert not any(one != two and two[: len(one)] == one for one in runs for two in runs)


def test_orders_of_a_prompt() -> None:
    best, places = [7, 2, 5], [0, 0, 3.0, 0, 0, 1.0, 0, 2.0]
    assert ordered(best, "best", places, "q") == [7, 2, 5]
    assert ordered(best, "document", places, "q") == [2, 5, 7]
    assert ordered(best, "collection", places, "q") == [5, 7, 2]
    shuffles = {tuple(ordered(best, "shuffled", places, str(seed))) for seed in range(30)}
    assert len(shuffles) > 1
    assert all(sorted(one) == [2, 5, 7] for one in shuffles)
    assert ordered(best, "shuffled", places, "same") == ordered(best, "shuffled", places, "same")


def test_documents_are_pieces_or_the_first_of_each_passage(parts: TorchModel) -> None:
    splitter = sized_splitter(parts.template, 20)
    passages = ["one two three four. " * 12, "another text. ", "another text.", " "]
    pieces = Pool.of(passages[:3], splitter, letters, first=False)
    first = Pool.of(passages[:3], splitter, letters, first=True)
    assert len(pieces.texts) > 2 == len(first.texts), "copies count once"
    assert len(pieces.vectors) == len(pieces.texts) == len(pieces.arrangement.places)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["collection", "best"])
def test_questions_retrieve_from_the_passages_of_all(
    parts: TorchModel, given_file: Path, tmp_path: Path, order: str
) -> None:
    out = tmp_path / "out.json"
    chosen = options("naive", pool="pieces", order=order, limit=2, contexts=("document",))
    (row,) = run(parts, letters, read_dataset(given_file), chosen, out)
    assert (row["pool"], row["n"]) == ("pieces", 2)
    assert row["kl"] > 0
    assert json.loads(out.read_text())["settings"]["pool"] == "pieces"


@pytest.mark.slow
def test_a_prompt_that_came_before_has_an_exact_first_chunk(
    parts: TorchModel, given_file: Path, tmp_path: Path
) -> None:
    data, found = read_dataset(given_file), []
    for led in (False, True):
        chosen = options("first_tokens", pool="first", contexts=("document",), order="shuffled", led=led)
        (row,) = run(parts, letters, data, chosen, tmp_path / f"{led}.json")
        found.append(row["kl"])
    assert found[1] < found[0]


def test_a_pool_needs_passages(parts: TorchModel, corpora_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="come without passages"):
        run(parts, letters, read_dataset(corpora_folder), options("naive", pool="first"), tmp_path / "out.json")
