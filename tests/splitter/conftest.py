from __future__ import annotations

from pathlib import Path

import pytest

from app.models.chat_template import load_tokenizer
from splitter.base import FastTokens
from tests.splitter.words import Words as Words
from tests.splitter.words import letters as letters


@pytest.fixture(scope="session")
def smollm2_tokens(smollm2: Path) -> FastTokens:
    return FastTokens(load_tokenizer(smollm2))
