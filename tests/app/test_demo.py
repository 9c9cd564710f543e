from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.compose import load_embedder
from app.demo import QUESTION, Passage, run, search
from app.samples import read_samples
from app.settings import load_settings
from ragcache.types import Chunk

LINE = r"first token \d+\.\d\d s \(without cache \d+\.\d\d s, measured\) · {} · \d+ % repaired"


@pytest.mark.parametrize(("disk", "where"), [("1GB", "5/5 chunks from disk"), ("0", "5/5 chunks from ram")])
def test_the_demo(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], disk: str, where: str) -> None:
    run(load_settings(None, model=str(tiny_folder), cache_dir=tmp_path, linker="query", disk_bytes=disk))
    shown = capsys.readouterr().out
    assert f"Question: {QUESTION}\nAnswer:   " in shown
    assert re.search(LINE.format(where), shown), shown
    assert re.search(r"\n\nNext: `ragcache doctor`", shown)


def test_the_question_finds_the_passage_that_answers_it(tmp_path: Path) -> None:
    texts = [(name, part) for name, text in read_samples().items() for part in text.split("\n\n")]
    passages = [Passage(name, text, Chunk((1,))) for name, text in texts]
    found = search(load_embedder(load_settings(None, cache_dir=tmp_path)), passages, QUESTION)
    assert len(found) == 5
    assert any("designed by the engineer Margaret Aldous" in passage.text for passage in found)


def test_there_are_three_samples_of_some_length() -> None:
    samples = read_samples()
    assert len(samples) == 3
    assert all(text.startswith("# ") and len(text.split()) > 500 for text in samples.values())
