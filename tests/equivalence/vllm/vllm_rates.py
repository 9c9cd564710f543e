"""What vLLM has learnt of its speed is where it begins the next time, as the torch engine does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import Settings
from app.models.loading import VllmModel, load_model
from ragcache.rates import Rates, Work
from ragcache.store import open_store
from tests.tiny_folder import write_tiny_folder

WORKS = (Work.of_rows(0, 500) + Work(passes=1), Work(passes=1), Work(placed=1000))


def test_a_run_begins_where_the_last_one_ended(smollm2: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    settings = Settings(
        engine="vllm", model=str(write_tiny_folder(tmp_path / "model", smollm2, head_dim=32, hidden_size=128)),
        dtype="float32", vllm_kv_bytes=64_000_000, data_dir=tmp_path / "data", cache_dir=tmp_path / "cache",
    )  # fmt: skip

    def known(model: VllmModel) -> list[float]:
        engine: Any = model.engine
        return [engine._connector.scheduler.pace.rates.seconds(work) for work in WORKS]

    def opened() -> VllmModel:
        model = load_model(settings)
        assert isinstance(model, VllmModel)
        return model

    first = opened()
    assert known(first) == [Rates().seconds(work) for work in WORKS]
    cache, template = first.cache(open_store(codec="raw")), first.template
    for place in range(3):
        question = template.question(f"Which of the {place + 2} is it?")
        list(cache.generate((template.system(), template.chunk("One."), question), max_tokens=8))
    first.close()
    learnt = known(first)
    assert learnt != [Rates().seconds(work) for work in WORKS]
    second = opened()
    try:
        assert known(second) == pytest.approx(learnt, rel=1e-3)
    finally:
        second.close()
