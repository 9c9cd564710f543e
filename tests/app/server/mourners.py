"""Clients of a server that is killed under them: what it told them was done, and whether that is so afterwards."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from app import Settings
from app.ingestion.spool import FOLDER
from app.job_states import ENDED
from tests.app.loaders.files import write_pdf
from tests.app.server.event_streams import asked, text_of
from tests.waiting import wait_until

SHELF = "/v1/collections/shelf/documents"
PATIENCE_S = 300.0
UPLOADS = 4  # of a life: each is a job that the next life may have to do
CUT = (httpx2.TransportError, AssertionError)  # a stream may end amid an event


class Mourner:
    """One client, on a thread of its own per life of the server. `counts` tells what it was told."""

    def __init__(self, number: int, folder: Path):
        self.number, self.counts = number, Counter[str]()
        self.jobs = set[str]()
        self.deleted = set[int]()
        self.answers = dict[str, list[tuple[str, str]]]()
        self._folder = folder
        self._random = random.Random(number)
        self._uploads = UPLOADS

    def live(self, client: httpx2.Client, over: threading.Event) -> None:
        self._uploads = UPLOADS
        while not over.is_set():
            try:
                self._random.choice((self._send, self._send_pages, self._delete, self._ask, self._ask, self._read))(
                    client
                )
            except httpx2.TransportError:
                return

    def _send(self, client: httpx2.Client) -> None:
        words = " ".join(self._random.choices(("lighthouse", "keeper", "oil", "storm", "Vesna", "lens"), k=300))
        self._put(client, f"note-{self.number}-{self._random.randrange(4)}.md", f"# Note\n\n{words}.\n".encode())

    def _send_pages(self, client: httpx2.Client) -> None:
        path = self._folder / f"pages-{self.number}.pdf"
        lines = [f"The lamp was lit {self._random.randrange(10**6)} times." for _ in range(5)]
        write_pdf(path, [lines])
        self._put(client, f"pages-{self.number}-{self._random.randrange(2)}.pdf", path.read_bytes())

    def _put(self, client: httpx2.Client, name: str, data: bytes) -> None:
        if not self._uploads:
            return
        self._uploads -= 1
        found = client.put(f"{SHELF}/{name}", content=data)
        assert found.status_code == 202, found.text
        self.jobs.add(found.json()["id"])
        self.counts["accepted"] += 1

    def _delete(self, client: httpx2.Client) -> None:
        mine = [one["id"] for one in client.get(SHELF).json()["data"] if f"-{self.number}-" in one["name"]]
        if not mine:
            return
        chosen = self._random.choice(mine)
        found = client.delete(f"{SHELF}/{chosen}")
        assert found.status_code in (200, 404, 409), found.text
        if found.status_code == 200:
            self.deleted.add(chosen)
            self.counts["deleted"] += 1

    def _ask(self, client: httpx2.Client) -> None:
        if not self.answers or self._random.random() < 0.3:
            made = client.post("/v1/conversations", json={"collection": "shelf"})
            assert made.status_code == 201, made.text
            self.answers[made.json()["id"]] = []
        conversation = self._random.choice(list(self.answers))
        body = {"question": "Who lit the lamp?", "temperature": 0.0, "max_tokens": self._random.randrange(2, 30)}
        seen = []
        with suppress(*CUT), asked(client, "POST", f"/v1/conversations/{conversation}/messages", json=body) as events:
            for one in events:
                seen.append(one)
                if one.name == "done":
                    self.answers[conversation].append((one.data["answer"]["id"], text_of(seen)))
                    self.counts["answered"] += 1

    def _read(self, client: httpx2.Client) -> None:
        for conversation in list(self.answers)[-1:]:
            found = client.get(f"/v1/conversations/{conversation}/messages")
            assert found.status_code == 200, found.text
            self.counts["read"] += 1

    def check(self, client: httpx2.Client) -> None:
        """Its jobs have ended before."""
        there = {one["id"] for one in client.get(SHELF, params={"limit": 1000}).json()["data"]}
        assert not there & self.deleted
        for conversation, answers in self.answers.items():
            stored = client.get(f"/v1/conversations/{conversation}/messages").json()["data"]
            texts = {one["id"]: one["content"] for one in stored}
            assert [(one, texts.get(one)) for one, _ in answers] == answers
            assert [one["role"] for one in stored] == ["user", "assistant"] * (len(stored) // 2)


def check_jobs(client: httpx2.Client, jobs: set[str]) -> Counter[str]:
    """Each goes on to an end -> how they ended."""
    states = dict[str, Any]()

    def look() -> bool:
        for job in jobs - {one for one, state in states.items() if state in ENDED}:
            states[job] = client.get(f"/v1/jobs/{job}").json().get("state")
        return all(state in ENDED for state in states.values())

    wait_until(look, PATIENCE_S, lambda: str(states))
    return Counter(states.values())


def check_documents(client: httpx2.Client) -> int:
    listed = client.get(SHELF, params={"limit": 1000}).json()["data"]
    for one in listed:
        assert one["state"] == "ready", one
        whole = client.get(f"{SHELF}/{one['id']}").json()
        assert len(whole["chunks"]) == one["chunks"] > 0
        assert all(0 <= chunk["start"] < chunk["end"] <= len(whole["text"]) for chunk in whole["chunks"])
    return len(listed)


def left_over(settings: Settings) -> list[Path]:
    """While nobody sends anything and all jobs are done: files that nobody will ask for."""
    sent = [one for one in (settings.data_dir / FOLDER).glob("*/*") if one.name != "lock"]
    temporary = [one for root in (settings.data_dir, settings.cache_dir) for one in root.rglob("*.tmp")]
    return sent + temporary
