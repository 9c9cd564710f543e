from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from app.models import resolve_embedder
from app.models.loading import RoughEmbedder, load_embedder, shorten
from app.samples import read_samples
from app.settings import Settings
from retriever.embedder import Embedder
from retriever.sentence_model import read_model


@pytest.fixture(scope="module")
def folder() -> Path:
    return resolve_embedder(Settings().embedder)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [line for text in read_samples().values() for line in text.splitlines() if line.strip()][:40]


def test_texts_of_one_subject_are_nearer_than_those_of_two() -> None:
    embedder = load_embedder(Settings(device="cpu"), RoughEmbedder)
    vectors = [embedder.embed([line for line in text.splitlines() if line]) for text in read_samples().values()]
    within = np.mean([float((one[:-1] * one[1:]).sum(axis=1).mean()) for one in vectors])
    between = np.mean([float((one @ other.T).mean()) for one, other in itertools.combinations(vectors, 2)])
    assert within > between + 0.05


def test_there_is_a_vector_for_every_text(texts: list[str]) -> None:
    embedder = load_embedder(Settings(device="cpu"), RoughEmbedder)
    vectors = embedder.embed([*texts, ""])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose((vectors * vectors).sum(axis=1), 1, atol=1e-2)
    assert embedder.embed([]).shape == (0, vectors.shape[1])


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [False, True])
def test_it_runs_a_third_of_the_layers(folder: Path, texts: list[str], narrow: bool) -> None:
    whole = read_model(folder)
    shorten(whole)
    expected = whole.encode(texts, normalize_embeddings=True)
    ours = RoughEmbedder(folder, narrow=narrow).embed(texts)
    np.testing.assert_allclose((ours * expected).sum(axis=1), 1, atol=1e-3)
    assert np.abs((ours * Embedder(folder).embed(texts)).sum(axis=1) - 1).max() > 0.1


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ends = nn.ModuleList([nn.ReLU(), nn.Linear(2, 2)])
        self.layers = nn.ModuleList(nn.ModuleList(nn.Linear(2, 2) for _ in range(8)) for _ in range(5))


def test_a_third_of_the_outermost_stack_stays() -> None:
    tower = Tower()
    shorten(tower)
    assert len(tower.ends) == 2, "these are no layers: they differ"
    assert [len(list(layer.children())) for layer in tower.layers] == [8, 8]


def test_a_model_without_a_stack_stays_whole() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    shorten(model)
    assert model(torch.ones(2)).shape == (2,)
    assert len(model) == 2
