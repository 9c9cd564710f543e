"""A server that is killed: what was shown as finished is stored, and the rest of the conversation is sound."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

import httpx2
import pytest

from app import RagPipeline, Settings
from app.cachecare import verify
from app.library.catalog.records import Message
from tests.app.server.event_streams import asked, text_of
from tests.app.server.mourners import PATIENCE_S, Mourner, check_documents, check_jobs, left_over
from tests.app.server.serving import STARTING_S
from tests.ports import held_port
from tests.waiting import wait_until

QUESTION = {"question": "Who designed the lighthouse?", "temperature": 0.0}
KILLS = int(os.environ.get("KILLS", "3"))  # more by hand: KILLS=50
COMMAND = "from app.cli import main; main()"


@contextmanager
def process(settings: Settings) -> Iterator[tuple[httpx2.Client, subprocess.Popen[bytes]]]:
    """`ragcache serve` in a process of its own, which the block may kill."""
    folders = ("--data-dir", settings.data_dir, "--cache-dir", settings.cache_dir, "--model", settings.model)
    with held_port() as port:
        argv = [sys.executable, "-c", COMMAND, "serve", "--port", port, "--engine", "torch", *folders]
        server = subprocess.Popen([*map(str, argv)])
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
                wait_until(lambda: is_ready(client), PATIENCE_S)
                yield client, server
        finally:
            server.kill()
            server.wait(STARTING_S)


def is_ready(client: httpx2.Client) -> bool:
    with suppress(httpx2.TransportError):
        return client.get("/ready").status_code == 200
    return False


def messages(settings: Settings, conversation_id: str) -> list[Message]:
    with RagPipeline(settings) as pipeline:
        pipeline.library.catalog.check_integrity()
        found = pipeline.library.catalog.conversations.messages(conversation_id)
        pipeline.library.catalog.conversations.delete(conversation_id)
        return found


@pytest.mark.slow
def test_an_answer_that_was_shown_as_finished_is_stored(sampled: Settings) -> None:
    with process(sampled) as (client, server):
        made = client.post("/v1/conversations", json={}).json()["id"]
        with asked(client, "POST", f"/v1/conversations/{made}/messages", json=QUESTION | {"max_tokens": 6}) as events:
            seen = []
            for one in events:
                seen.append(one)
                if one.name == "done":
                    server.kill()
                    break
    question, answer = messages(sampled, made)
    assert (question.content, answer.content) == (QUESTION["question"], text_of(seen))
    assert answer.id == seen[-1].data["answer"]["id"]


@pytest.mark.slow
def test_an_answer_that_was_not_finished_leaves_no_half_of_it(sampled: Settings) -> None:
    with process(sampled) as (client, server):
        made = client.post("/v1/conversations", json={}).json()["id"]
        long = {"max_tokens": 1200, "temperature": 2.0, "seed": 1}
        with asked(client, "POST", f"/v1/conversations/{made}/messages", json=QUESTION | long) as events:
            assert [next(events).name for _ in range(3)] == ["start", "piece", "piece"]
            server.kill()
            with suppress(httpx2.TransportError, AssertionError):  # cut off, perhaps amid an event
                assert "done" not in [one.name for one in events]
    assert messages(sampled, made) == []


@pytest.mark.slow
def test_what_clients_were_told_is_so_however_often_the_server_is_killed(tiny_folder: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    mourners = [Mourner(number, tmp_path) for number in range(4)]
    moments = random.Random(7)
    for life in range(KILLS + 1):
        with process(settings) as (client, server):
            if life == 0:
                assert client.post("/v1/collections", json={"name": "shelf"}).status_code == 201
            ends = check_jobs(client, set().union(*(one.jobs for one in mourners)))
            for one in mourners:
                one.check(client)
            there = check_documents(client)
            print(life, dict(ends), there, sum((one.counts for one in mourners), start=Counter[str]()))
            wait_until(lambda: not left_over(settings), STARTING_S, lambda: str(left_over(settings)))
            if life < KILLS:
                _killed_under(client, server, mourners, moments.uniform(0.2, 4.0))
    with RagPipeline(settings) as pipeline:
        pipeline.library.catalog.check_integrity()
        assert not verify(pipeline.library, pipeline.models).flaws


def _killed_under(
    client: httpx2.Client, server: subprocess.Popen[bytes], mourners: list[Mourner], seconds: float
) -> None:
    over = threading.Event()
    with ThreadPoolExecutor(len(mourners)) as threads:
        lives = [threads.submit(one.live, client, over) for one in mourners]
        sleep(seconds)
        server.kill()
        over.set()
    for life in lives:
        life.result()
