"""Two processes, with a disk each, over one bucket behind a network of 50 ms."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.buckets import Proxy, S3Bucket, new_bucket

SCRIPT = Path(__file__).with_name("machines.py")
Started = Callable[[str, str], "subprocess.Popen[str]"]


@pytest.fixture
def bucket(s3: int, network: Proxy) -> S3Bucket:
    return new_bucket(s3, network.port)


@pytest.fixture
def started(tmp_path: Path, bucket: S3Bucket) -> Started:
    """A scene on a machine, by its name."""

    def start(scene: str, name: str) -> subprocess.Popen[str]:
        environment = {**os.environ, **bucket.environment, "PYTHONPATH": os.fspath(SCRIPT.parents[4])}
        command = [sys.executable, os.fspath(SCRIPT), scene, os.fspath(tmp_path / name), bucket.url]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def ended(process: subprocess.Popen[str]) -> Any:
    """What it told."""
    told, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(told)


def tiers(told: Any) -> set[str]:
    return {told["system"], *(chunk["tier"] for chunk in told["chunks"])}


@pytest.mark.slow
def test_one_ingests_and_another_answers_from_it(started: Started) -> None:
    ended(started("ingest", "one"))
    answered, there = ended(started("answer", "other")), ended(started("answer", "one"))
    assert {chunk["tier"] for chunk in answered["chunks"]} <= {"bucket", "disk", "ram"}
    assert answered["tokens"] == there["tokens"]
    again = ended(started("answer", "other"))
    assert tiers(again) == {"disk"}, "the disk is the bucket's cache"
    assert again["tokens"] == answered["tokens"]


@pytest.mark.slow
def test_both_put_the_same_at_once(started: Started, network: Proxy) -> None:
    both = [started("ingest", name) for name in ("one", "other")]
    first, second = map(ended, both)
    assert first == second
    names = {path.partition("?")[0] for method, path in network.requests if method == "PUT"}
    assert len(names) == len(first) + 1, "the System segment's too, each by one name"
    assert tiers(ended(started("answer", "third"))) <= {"bucket", "disk", "ram"}


@pytest.mark.slow
def test_one_deletes_and_nobody_has_it_any_more(started: Started) -> None:
    ended(started("ingest", "one"))
    ended(started("delete", "other"))
    told = ended(started("answer", "third"))
    assert {chunk["tier"] for chunk in told["chunks"]} == {"computed"}


@pytest.mark.slow
def test_one_deletes_while_others_answer(started: Started) -> None:
    ended(started("ingest", "one"))
    there = ended(started("answer", "one"))
    answers = [started("answer", name) for name in ("second", "third")]
    ended(started("delete", "fourth"))
    for one in answers:
        told = ended(one)
        assert {chunk["tier"] for chunk in told["chunks"]} <= {"bucket", "disk", "ram", "computed"}
        assert len(told["tokens"]) == len(there["tokens"])
