from __future__ import annotations

import re
from pathlib import Path

import pytest

from app import RagPipeline
from app.cli.demo import QUESTION, own_settings, run
from app.models.sampling import resolve_sampling
from app.samples import read_samples
from app.settings import load_settings

pytestmark = pytest.mark.slow

LINE = r"first token \d+\.\d\d s \(without cache \d+\.\d\d s, measured\) · {} · \d+ % repaired"


@pytest.mark.parametrize(("disk", "where"), [("1GB", "5/5 chunks from disk"), ("0", "5/5 chunks from ram")])
def test_the_demo(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], disk: str, where: str) -> None:
    data = tmp_path / "data"
    settings = load_settings(
        None, model=str(tiny_folder), cache_dir=tmp_path / "cache", data_dir=data, linker="query", disk_bytes=disk
    )
    run(settings)
    shown = capsys.readouterr().out
    assert f"Question: {QUESTION}\nAnswer:   " in shown
    assert re.search(r"\n\[1\] lighthouse\.md, .+\n\[2\] ", shown)
    assert re.search(LINE.format(where), shown), shown
    assert re.search(r"\n\nNext: `\.venv/bin/ragcache ui` opens", shown)
    assert not data.exists(), "the documents of the user's are not touched"
    with RagPipeline(own_settings(settings)) as pipeline:
        found = pipeline.retrieve(QUESTION)
    assert any("designed by the engineer Margaret Aldous" in one.text for one in found)


def test_it_is_greedy_whatever_the_settings_say() -> None:
    """Whoever runs it again sees the same, and so does whoever compares."""
    assert own_settings(load_settings(None, kv="off")).kv == "auto", "it shows what KV saves"
    assert resolve_sampling(own_settings(load_settings(None, temperature=0.7, seed=1))).temperature == 0


def test_there_are_three_samples_of_some_length() -> None:
    samples = read_samples()
    assert len(samples) == 3
    assert all(text.startswith("# ") and len(text.split()) > 500 for text in samples.values())
