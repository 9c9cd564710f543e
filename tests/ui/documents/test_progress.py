"""Rows of files on their way: each state, what it offers, and nothing of a name that does anything."""

from __future__ import annotations

from typing import Any

import pytest

from app.client.amounts import count, duration, size
from ui.documents.progress import MOST, jobs_line, outcome, progress_share, row, shown_jobs

HOSTILE = '<img src="//evil.example/x.png">"\'`**b**'
STAGES = {"read": {"done": 1, "of": 1}, "split": {"done": 40, "of": 40}, "kv": {"done": 10, "of": 40}}


def job(state: str, name: str = "a.md", **changes: Any) -> dict[str, Any]:
    made = {"id": name, "name": name, "bytes": 2048, "state": state, "error": None, "progress": {}, "kind": "ingest"}
    return made | {"created": 1, "finished": 900 if state in ("done", "failed", "cancelled") else None} | changes


def test_one_that_runs_tells_stages_and_the_time_left() -> None:
    html = row(job("running", progress={"stages": STAGES, "seconds_left": 42.0}))
    assert "✓ Read" in html and "✓ Split · 40 chunks" in html and "KV 10 of 40" in html and "about 42 s left" in html
    assert 'data-rc="job-cancel"' in html and "job-retry" not in html


def test_no_time_is_told_that_nobody_measured() -> None:
    assert "left</" not in row(job("running", progress={"stages": STAGES, "seconds_left": None}))
    assert "left</" not in row(job("queued"))


def test_one_whose_document_came_before_its_kv_says_that_it_is_in() -> None:
    html = row(job("queued", progress={"stages": STAGES, "document": 3, "outcome": "added", "gave_way": True}))
    assert "is in, the rest of its KV waits" in html and "waits · 2.0 KiB" not in html
    assert "waits · 2.0 KiB" in row(job("queued", progress={"gave_way": True}))


def test_one_that_failed_says_why_and_can_be_tried_again() -> None:
    html = row(job("failed", error="a.md is damaged"))
    assert "a.md is damaged" in html and 'data-rc="job-retry"' in html and "job-cancel" not in html
    html = row(job("failed", error="a.md is damaged", progress={"final": True}))
    assert 'data-rc="job-hide"' in html and "job-retry" not in html, "it would fail alike, and is to be sent again"


@pytest.mark.parametrize("state", ["queued", "running", "failed", "cancelled", "done"])
def test_names_and_reasons_are_texts(state: str) -> None:
    html = row(job(state, HOSTILE, error=HOSTILE))
    assert "<img" not in html and "&lt;img" in html
    assert 'evil.example/x.png"' not in html


def test_what_a_server_of_another_version_tells_is_passed_over() -> None:
    for stages in (None, [], {"kv": 3}, {"kv": {"done": "x", "of": 1}}, {"kv": {"done": 0, "of": 0}}):
        assert progress_share(job("running", progress={"stages": stages})) == 0.0
        assert "rc-job" in row(job("running", progress={"stages": stages}))


def test_the_newest_job_of_a_file_counts_and_old_ends_are_forgotten() -> None:
    newest = [job("queued", id="2", created=5), job("failed", id="1"), job("done", "b.md"), job("failed", "c.md")]
    assert [one["id"] for one in shown_jobs(newest, now=1000.0)] == ["b.md", "c.md", "2"]
    assert [one["id"] for one in shown_jobs(newest, now=10_000.0)] == ["c.md", "2"]


def test_many_are_told_by_their_number() -> None:
    html = jobs_line([job("queued", f"{one}.md") for one in range(MOST + 7)])
    assert html.count('class="rc-job"') == MOST
    assert "7 more files" in html


def test_the_end_is_told_when_nothing_is_on_its_way() -> None:
    assert outcome([job("done"), job("running", "b.md")]) == ""
    assert outcome([job("failed")]) == ""
    assert outcome([job("done"), job("done", "b.md"), job("failed", "c.md")]) == "2 documents are in."
    assert outcome([job("done", "**a**.md")]) == r"\*\*a\*\*\.md is in."


def test_amounts_as_people_say_them() -> None:
    assert [size(one) for one in (0, 999, 1500, 86_600_000)] == ["0 B", "999 B", "1.5 KiB", "82.6 MiB"]
    assert [duration(one) for one in (0.2, 48, 600, 7200)] == ["1 s", "48 s", "10 min", "2.0 h"]
    assert [count(one, "chunk") for one in (1, 1200)] == ["1 chunk", "1,200 chunks"]
