"""The examples run, with the bundled models, and say what their documents say."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import Settings
from examples import ask_documents, llama_index_engines
from tests.app.filling import LIGHTHOUSE

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(smollm2: Path, tmp_path: Path) -> Settings:
    return Settings(
        model=str(smollm2), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", top_k=2, max_tokens=12
    )


@pytest.fixture
def lighthouse(tmp_path: Path) -> Path:
    """The start of one of the documents alone, so that it takes seconds."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "lighthouse.md").write_text(LIGHTHOUSE, encoding="utf-8")
    return folder


def test_asking_documents(settings: Settings, lighthouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask_documents.main(lighthouse, settings)
    told = capsys.readouterr().out
    assert told.startswith("1 documents added, 0 unchanged\n")
    assert "Margaret Aldous" in told.splitlines()[1]
    assert "  [2] lighthouse.md, " in told
    assert " tokens reused, " in told


def test_the_engines_of_llama_index(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_index_engines, "read_samples", lambda: {"lighthouse.md": LIGHTHOUSE})
    llama_index_engines.main(settings)
    first, *rest = capsys.readouterr().out.splitlines()
    assert "Margaret Aldous" in first
    assert rest[0].startswith("  [1] lighthouse.md, node ")
    assert rest[2] in ("  chunks came from: ['ram', 'ram']", "  chunks came from: ['disk', 'disk']")
    assert len(rest) == 5
