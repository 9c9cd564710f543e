from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from app.models.loading import TorchModel, load_torch_model
from app.settings import load_settings
from retriever import Vectors
from tests.tiny_folder import write_tiny_folder

FRUIT = ("Apples", "Pears", "Plums", "Quinces")


@pytest.fixture(scope="session")
def tiny_folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("tiny"), smollm2)


@pytest.fixture
def parts(tiny_folder: Path, tmp_path: Path) -> TorchModel:
    return load_torch_model(load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32"))


@pytest.fixture
def given_file(tmp_path: Path) -> Path:
    """Questions that bring their passages."""
    records = [
        {
            "question": f"Where do {fruit} grow?",
            "answers": [f"In the {place}", "Nowhere"],
            "contexts": [f"{fruit} grow in the {place}. They are ripe in month {month}." for month in range(3)],
        }
        for fruit, place in zip(FRUIT, ("orchard", "garden", "valley", "yard"), strict=True)
    ]
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


@pytest.fixture
def corpora_folder(tmp_path: Path) -> Path:
    """Questions about corpora, whose passages are to be retrieved."""
    folder = tmp_path / "corpora"
    folder.mkdir()
    for name in ("north", "south"):
        paragraphs = [f"In the {name} there are {fruit.lower()} of {n} kinds. Nobody eats them.\n\n"
                      for n, fruit in enumerate(FRUIT * 3)]  # fmt: skip
        (folder / f"{name}.md").write_text("".join(paragraphs))
    lines = [
        {"question": f"How many kinds of {fruit}?", "corpus": name, "references": []}
        for fruit in FRUIT[:2]
        for name in ("south", "north")
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def letters(texts: Sequence[str]) -> Vectors:
    """An embedding that takes no model: how often each letter stands in the text."""
    counts = np.asarray([[text.lower().count(chr(97 + n)) for n in range(26)] for text in texts], dtype=np.float32)
    return np.asarray(counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-6), dtype=np.float32)
