"""What one run has measured is where the next one begins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.models.loading import TorchModel, load_torch_model
from app.models.rates import WRITE_S, RememberedRates
from app.settings import load_settings
from ragcache.keeping import Task
from ragcache.rates import Rates, Work
from ragcache.records import Records
from ragcache.store import open_store

WORK = Work.of_rows(0, 500) + Work(passes=1)
FACTS = {"device": "cpu"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records")


def nobody(task: Task) -> None:
    raise AssertionError("it is not time yet")


def learnt(records: Records, model: Path, seconds: float, **facts: str) -> RememberedRates:
    rates = RememberedRates(records, model, FACTS | facts, nobody)
    for _ in range(20):
        rates.observe(WORK, seconds)
        rates.observe_load("disk", 1_000_000, seconds / 10)
    return rates


def test_a_run_begins_where_the_last_one_ended(records: Records, model: Path) -> None:
    learnt(records, model, 3.0).write()
    again = RememberedRates(records, model, FACTS, nobody)
    assert again.seconds(WORK) == pytest.approx(3.0, rel=0.1)
    assert again.load_seconds("disk", 1_000_000) == pytest.approx(0.3, rel=0.1)
    other = RememberedRates(records, model, {"device": "cuda"}, nobody)
    assert other.seconds(WORK) == Rates().seconds(WORK), "of another device nothing is known"


def test_of_two_processes_the_last_counts(records: Records, model: Path) -> None:
    first, second = learnt(records, model, 3.0), learnt(records, model, 0.5)
    second.write()
    first.write()
    assert RememberedRates(records, model, FACTS, nobody).seconds(WORK) == pytest.approx(3.0, rel=0.1)


def test_it_is_written_once_in_a_while_by_who_has_time(records: Records, model: Path) -> None:
    now, tasks = [0.0], list[Task]()
    rates = RememberedRates(records, model, FACTS, tasks.append, lambda: now[0])
    for now[0] in (1.0, WRITE_S, WRITE_S + 1, 2 * WRITE_S + 1):
        rates.observe(WORK, 2.0)
    assert len(tasks) == 2
    assert not records.root.exists(), "whoever observes does not wait for a disk"
    assert tasks[0]() == []
    assert records.root.exists()


def test_a_run_that_measured_nothing_leaves_what_is_there(records: Records, model: Path) -> None:
    learnt(records, model, 3.0).write()
    RememberedRates(records, model, FACTS, nobody).write()
    assert RememberedRates(records, model, FACTS, nobody).seconds(WORK) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize(
    "values",
    [
        [],
        "rates",
        {"work": [1, 2], "spread": "wide", "loads": [], "shares": 3},
        {"work": [1e400, 1, 1, 1], "loads": {"disk": [1e400, 0, 0]}},
        {"work": [-1, 1, 1, 1], "spread": -1, "loads": {"disk": [-1, 0, 0]}, "shares": {"auto": 2}},
        {"work": [10**400, 1, 1, 1], "loads": {"disk": [10**400, 0, 0]}},
        {"work": [None, True, {}, []], "spread": True, "loads": {"disk": "fast"}, "shares": {"auto": None}},
        {"work": [0, 0, 0, 0], "spread": float("nan"), "loads": {"disk": [float("nan"), 0, 0]}},
        {"work": [0, 4.0, 0, 0], "loads": {"disk": [0, 2e-5, 0.1]}},  # four seconds a token, 50 KB/s
        {"work": [1e-7, 1e-9, 1e-12, 0], "loads": {"disk": [0, 0, 0.1]}},  # in no time
        {"loads": {"disk": [60.0, 1e-9, 0.1]}},  # a minute for each read
    ],
)
def test_a_record_of_nonsense_is_as_good_as_none(records: Records, model: Path, values: Any) -> None:
    learnt(records, model, 3.0).write()
    (path,) = records.root.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"values": values}))
    found, fresh = RememberedRates(records, model, FACTS, nobody), Rates()
    assert (found.seconds(WORK), found.spread) == (fresh.seconds(WORK), fresh.spread)
    assert found.load_seconds("disk", 1000) == fresh.load_seconds("disk", 1000)
    assert found.link_share("auto") == fresh.link_share("auto")


def test_what_is_slow_or_quick_within_reason_is_believed() -> None:
    slow = Rates({"work": [50.0, 3.0, 0, 0], "loads": {"disk": [5.0, 9e-6, 0.1], "bucket": [0, 1e-4, 0.1]}})
    assert slow.seconds(Work(rows=1)) == pytest.approx(3.0, rel=0.01)
    assert slow.load_seconds("disk", 10**6) == pytest.approx(14.0, rel=0.01)
    assert slow.load_seconds("bucket", 10**6) == pytest.approx(100.0, rel=0.1)
    quick = Rates({"work": [2e-6, 0, 0, 0], "loads": {"disk": [0, 1e-12, 0.1]}})
    assert quick.seconds(Work(passes=1)) == pytest.approx(2e-6, rel=0.01)
    assert quick.load_seconds("disk", 10**6) < 0.1 * Rates().load_seconds("disk", 10**6)


def test_a_torn_record_is_as_good_as_none(records: Records, model: Path) -> None:
    learnt(records, model, 3.0).write()
    (path,) = records.root.iterdir()
    for text in (path.read_text()[:-9], "", "[" * 100_000):
        path.write_text(text)
        assert RememberedRates(records, model, FACTS, nobody).seconds(WORK) == Rates().seconds(WORK)


@pytest.fixture
def opened(tiny_folder: Path, tmp_path: Path) -> Callable[..., TorchModel]:
    def made(remote: str = "") -> TorchModel:
        settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path, link_when="sooner", remote=remote)
        return load_torch_model(settings)

    return made


def test_of_another_bucket_nothing_is_known(opened: Callable[..., TorchModel]) -> None:
    """Whoever signs in to it."""
    near = opened("https://me:secret@near/kv")
    near.learnt.observe(WORK, 1.0)
    for _ in range(20):
        near.learnt.observe_load("bucket", 10**6, 1e-3)
    near.close()
    again, far = opened("https://near/kv/"), opened("https://far/kv")
    assert again.learnt.load_seconds("bucket", 10**6) == pytest.approx(1e-3, rel=0.3), "not 20 ms"
    assert far.learnt.load_seconds("bucket", 10**6) == Rates().load_seconds("bucket", 10**6)
    for model in (again, far):
        model.close()


def test_a_model_that_is_closed_has_written_them(opened: Callable[..., TorchModel]) -> None:
    parts = opened()
    cache, template = parts.cache(open_store(codec="raw")), parts.template
    list(cache.generate((template.system(), template.chunk("One."), template.question("Which?")), max_tokens=1))
    known = parts.learnt.seconds(WORK)
    parts.close()
    assert opened().learnt.seconds(WORK) == pytest.approx(known, rel=1e-6)
    assert known != Rates().seconds(WORK)
