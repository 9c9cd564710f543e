from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.retrieval import RetrievalBenchOptions
from benchmarks.retrieval.measurement import HITS, ClusteredSource, Clusters, measure, nearest, recall
from ragcache.errors import ConfigError
from retriever import RetrieverError

COLUMNS = ("index", "vectors", "recall_at_10", "p50_ms", "p99_ms", "build_s", "bytes")
OPTIONS = RetrievalBenchOptions((300,), ("flat",), dimension=16, clusters=10, spread=0.5, queries=40, seed=0)


def every(source: ClusteredSource) -> np.ndarray:
    return np.concatenate([vectors for _, _, vectors in source.added(0)])


def test_vectors_are_the_same_every_time_and_of_length_one() -> None:
    one, again = (every(ClusteredSource(Clusters(OPTIONS), 5000)) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, atol=1e-5)
    other = every(ClusteredSource(Clusters(replace(OPTIONS, seed=1)), 5000))
    assert not np.array_equal(one, other)


def test_vectors_lie_in_clusters_that_queries_share() -> None:
    clusters = Clusters(OPTIONS)
    vectors, queries = every(ClusteredSource(clusters, 2000)), clusters.block(2000, 40)
    nearest_by_far = np.sort(queries @ vectors.T, axis=1)[:, -10:].mean()
    assert nearest_by_far > 0.8 > 0.3 > abs((queries @ vectors.T).mean())
    assert not any((vectors == query).all(axis=1).any() for query in queries), "none is a copy"


def test_nearest_is_brute_force() -> None:
    clusters = Clusters(OPTIONS)
    source, queries = ClusteredSource(clusters, 9000), clusters.block(9000, 20)
    scores = queries @ every(source).T
    for own, row in zip(nearest(source, queries), scores, strict=True):
        assert set(own) == set(np.argsort(-row)[:HITS] + 1)


def test_recall_is_the_part_that_was_found() -> None:
    truth = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert recall([np.array([4, 3, 2, 1]), np.array([5, 6, 90, -1])], truth) == pytest.approx(0.75)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flat", "hnsw", "ivf"])
def test_a_row_per_index(name: str) -> None:
    clusters = Clusters(OPTIONS)
    queries = clusters.block(3000, 40)
    truth = nearest(ClusteredSource(clusters, 3000), queries)
    row = measure(ClusteredSource(clusters, 3000), name, queries, truth)
    assert tuple(row) == COLUMNS
    assert (row["index"], row["vectors"]) == (name, 3000)
    assert float(row["recall_at_10"] or 0) >= (1.0 if name == "flat" else 0.95)
    assert int(row["bytes"] or 0) > 3000 * 16 * 2


@pytest.mark.slow
def test_the_command_writes_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["retrieval", "--vectors", "50,300", "--indexes", "flat,ivf", "--dimension", "8", "--clusters", "5"]
    words += ["--queries", "20", "--json", str(tmp_path / "retrieval.json")]
    monkeypatch.setattr(sys, "argv", ["ragcache", "bench", *words])
    ran = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    written = json.loads((tmp_path / "retrieval.json").read_text())
    assert [(row["index"], row["vectors"]) for row in written["rows"]] == [
        ("flat", 50),
        ("ivf", 50),
        ("flat", 300),
        ("ivf", 300),
    ]
    assert all(tuple(row) == COLUMNS for row in written["rows"])
    assert written["settings"]["clusters"] == 5
    assert "recall_at_10" in ran.output


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(ConfigError, match="give at least 10"):
        CliRunner().invoke(app, ["retrieval", "--vectors", "5"], catch_exceptions=False)
    with pytest.raises(RetrieverError, match="unknown vector index 'tree'"):
        CliRunner().invoke(app, ["retrieval", "--indexes", "flat,tree"], catch_exceptions=False)
