"""With the bundled models: what only a model that reads can show."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import RagPipeline, Settings
from tests.app.filling import LIGHTHOUSE, put

pytestmark = pytest.mark.slow


def test_questions_are_answered_from_the_document(smollm2: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(smollm2), data_dir=tmp_path, cache_dir=tmp_path, top_k=2, max_tokens=12)
    with RagPipeline(settings) as pipeline:
        put(pipeline, {"/docs/lighthouse.md": LIGHTHOUSE}, kv=True)
        conversation = pipeline.conversation()
        first = conversation.ask("Who designed the lighthouse?")
        second = conversation.ask("How tall is the tower in metres?")
    assert "Margaret Aldous" in first.text
    assert "38" in second.text
    assert all(chunk.tier != "computed" for answer in (first, second) for chunk in answer.report.chunks)
    best = max(first.citations, key=lambda one: one.quote.likeness if one.quote else -1)
    assert best.quote is not None
    assert best.quote.text.startswith("The tower was designed by the engineer Margaret Aldous")
