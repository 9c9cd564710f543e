"""How far a file is: counted in chunks, and the time left told only where a pace was measured."""

from __future__ import annotations

from app.ingestion.stages import FileStages


def test_the_pace_of_the_last_stage_tells_the_time_left() -> None:
    now = [100.0]
    stages = FileStages(clock=lambda: now[0])
    assert stages.as_json() == {}
    stages.reached("read", 1, 1)
    stages.reached("embedded", 40, 40)
    assert stages.as_json()["seconds_left"] is None  # the KV follows, of which nothing is known yet
    stages.reached("kv", 0, 40, last=True)
    assert stages.as_json()["seconds_left"] is None
    now[0] += 5.0
    stages.reached("kv", 10, 40, last=True)
    assert stages.as_json() == {
        "stages": {"read": {"done": 1, "of": 1}, "embedded": {"done": 40, "of": 40}, "kv": {"done": 10, "of": 40}},
        "seconds_left": 15.0,
    }


def test_what_others_had_done_before_counts_in_no_pace() -> None:
    now = [0.0]
    stages = FileStages(clock=lambda: now[0])
    stages.reached("kv", 90, 100, last=True)
    now[0] += 3.0
    stages.reached("kv", 93, 100, last=True)
    assert stages.as_json()["seconds_left"] == 7.0
