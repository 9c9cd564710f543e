from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from app.compose import load_parts, load_store
from app.settings import load_settings
from ragcache.errors import ConfigError


@pytest.fixture
def threads() -> Iterator[int]:
    """The number of threads, put back afterwards."""
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def test_the_parts_fit_together(tiny_folder: Path, tmp_path: Path) -> None:
    settings = load_settings(
        None, model=str(tiny_folder), cache_dir=tmp_path, dtype="bfloat16", device="cpu", context_chunks=2
    )
    parts = load_parts(settings)
    assert parts.engine.spec.dtype == torch.bfloat16
    store = load_store(settings)
    cache = parts.cache(store, "first_tokens", keep_missed=False)
    assert (cache.kvgen.context_chunks, cache.linker.name, cache.keep_missed) == (2, "first_tokens", False)
    template = parts.template
    for _ in cache.ingest(template.system(), [template.chunk("One."), template.chunk("Two.")]):
        pass
    segments = (template.system(), template.chunk("Two."), template.question("Which?"))
    reopened = parts.cache(load_store(settings), "first_tokens")
    report = reopened.generate(segments, max_tokens=1).report
    assert [chunk.tier for chunk in report.chunks] == ["disk"], "what was ingested is there after a restart"
    assert (tmp_path / "kv").is_dir()


def test_the_threads_of_the_settings(tiny_folder: Path, tmp_path: Path, threads: int) -> None:
    load_parts(load_settings(None, model=str(tiny_folder), cache_dir=tmp_path, threads=threads + 1))
    assert torch.get_num_threads() == threads + 1


def test_an_unknown_engine_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"RAGCACHE_ENGINE='vlm': choose from torch"):
        load_parts(load_settings(None, engine="vlm", cache_dir=tmp_path))


def test_loading_draws_no_bar(tiny_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_parts(load_settings(None, model=str(tiny_folder), cache_dir=tmp_path))
    assert capfd.readouterr() == ("", "")
