from __future__ import annotations

from pathlib import Path

import pytest

from app.prompt import PromptTemplate, load_tokenizer
from tests.tiny_folder import write_tiny_folder


@pytest.fixture(scope="session")
def tiny_folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("tiny"), smollm2)


@pytest.fixture(scope="session")
def template(smollm2: Path) -> PromptTemplate:
    return PromptTemplate(load_tokenizer(smollm2), "Answer from the passages.")
