"""Whoever uses the server while it soaks, each again and again on a thread of its own."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx2

COLLECTION = "soaked"
CHAT = "/v1/chat/completions"
PATIENCE_S = 600.0
BUSY = (httpx2.codes.CONFLICT, httpx2.codes.TOO_MANY_REQUESTS)  # come again
PAUSE_S = 0.5
QUESTIONS = ("What is this about?", "Who is named here, and why?", "When did it happen?", "What came of it?")
# A client that is killed: it reads an answer as slowly as it comes, and says when it has begun.
VICTIM = """
import sys, urllib.request
asked = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {"Content-Type": "application/json"})
with urllib.request.urlopen(asked) as response:
    print(response.readline(), flush=True)
    response.read()
"""


class LostData(Exception):
    """The server has not what it said it has, or not as it was."""


@dataclass
class SoakTally:
    """What one kind of use came to."""

    done: int = 0
    busy: int = 0  # told to come again
    errors: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)


@dataclass
class SoakRun:
    """What all of them share."""

    url: str
    model: str
    texts: Sequence[str]
    answer_tokens: int
    documents: int
    seed: int
    ended: threading.Event = field(default_factory=threading.Event)
    kept: dict[str, tuple[int, str]] = field(default_factory=dict)  # by name: documents, and a text that is theirs
    gone: set[int] = field(default_factory=set)
    told: dict[str, list[str]] = field(default_factory=dict)  # by conversation: answers that were shown to their ends

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False)

    @property
    def body(self) -> Mapping[str, Any]:
        """Of a question to the documents."""
        return {
            "model": f"{self.model}@{COLLECTION}",
            "max_tokens": self.answer_tokens,
            "stream": True,
            "messages": [{"role": "user", "content": random.choice(QUESTIONS)}],
        }


Use = Callable[[SoakRun, httpx2.Client, random.Random], None]


def use_again_and_again(run: SoakRun, use: Use, tally: SoakTally, seed: int) -> None:
    """Until the run has ended. Whatever goes wrong is told in the tally."""
    drawn = random.Random(seed)
    with run.client() as client:
        while not run.ended.is_set():
            try:
                use(run, client, drawn)
                tally.done += 1
            except LostData as error:
                tally.lost.append(str(error))
            except httpx2.HTTPStatusError as error:
                if error.response.status_code in BUSY:
                    tally.busy += 1
                else:
                    tally.errors[f"{error.response.status_code}: {error.response.text[:200]}"] += 1
                sleep(PAUSE_S)
            except (httpx2.HTTPError, ValueError, KeyError, OSError) as error:
                tally.errors[f"{type(error).__name__}: {error}"[:200]] += 1
                sleep(PAUSE_S)


def streams(run: SoakRun, client: httpx2.Client, drawn: random.Random) -> None:
    """An answer, read to its end."""
    with client.stream("POST", CHAT, json=run.body) as response:
        _check(response)
        if "data: [DONE]" not in list(response.iter_lines()):
            raise LostData("a stream ended without its end")


def leaves(run: SoakRun, client: httpx2.Client, drawn: random.Random) -> None:
    """An answer that nobody reads on behind its first events."""
    with client.stream("POST", CHAT, json=run.body) as response:
        _check(response)
        list(islice(response.iter_lines(), drawn.randrange(1, 6)))


def killed(run: SoakRun, client: httpx2.Client, drawn: random.Random) -> None:
    """A process that reads an answer, and is killed amid it."""
    command = [sys.executable, "-c", VICTIM, run.url + CHAT, json.dumps(run.body)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as victim:
        assert victim.stdout is not None
        victim.stdout.readline()
        sleep(drawn.uniform(0, 0.5))
        victim.kill()


def uploads(run: SoakRun, client: httpx2.Client, drawn: random.Random) -> None:
    """A document; the oldest goes where there are enough."""
    mark = f"mark {drawn.getrandbits(64):x}"
    name = f"{mark.replace(' ', '-')}.md"
    path = f"/v1/collections/{COLLECTION}/documents"
    text = f"# Of {mark}\n\n{drawn.choice(run.texts)[:3000]}\n"
    job = _json(client.put(f"{path}/{name}", content=text.encode()))
    while job["state"] not in ("done", "failed", "cancelled"):
        sleep(PAUSE_S)
        job = _json(client.get(f"/v1/jobs/{job['id']}"))
    if job["state"] != "done":
        raise LostData(f"{name}: {job['state']}: {job['error']}")
    run.kept[name] = int(job["progress"]["document"]), mark
    if len(run.kept) > run.documents:
        oldest = next(iter(run.kept))
        document, _ = run.kept[oldest]
        response = client.delete(f"{path}/{document}")
        if response.status_code != httpx2.codes.CONFLICT:
            _json(response)
            run.gone.add(document)
            del run.kept[oldest]


def converses(run: SoakRun, client: httpx2.Client, drawn: random.Random) -> None:
    """A question whose asker goes away, and comes back for the rest of the answer."""
    made = _json(client.post("/v1/conversations", json={"collection": COLLECTION}))["id"]
    base, heard, mark = f"/v1/conversations/{made}", "", ""
    body = {"question": drawn.choice(QUESTIONS), "max_tokens": run.answer_tokens}
    with client.stream("POST", f"{base}/messages", json=body) as response:
        _check(response)
        for mark, name, data in islice(_events(response.iter_lines()), drawn.randrange(1, 8)):  # noqa: B007
            heard += data["text"] if name == "piece" else ""
    headers = {"Last-Event-ID": mark} if mark else {}
    last: Mapping[str, Any] = {}
    with client.stream("GET", f"{base}/answer", headers=headers) as response:
        _check(response)
        for _, name, data in _events(response.iter_lines()):
            heard += data["text"] if name == "piece" else ""
            last = data if name == "done" else last
    if not last or last["answer"]["content"] != heard.strip():
        raise LostData(f"conversation {made}: {heard!r} was heard, and the end says {last.get('answer')}")
    run.told[made] = [heard.strip()]


def contexts(run: SoakRun, client: httpx2.Client, drawn: random.Random) -> None:
    """A context cache that is made, asked and expired."""
    made = _json(client.post("/v1/context_caches", json={"texts": [drawn.choice(run.texts)[:2000]]}))["id"]
    parts = [{"type": "context_cache", "cache_id": made}, {"type": "text", "text": drawn.choice(QUESTIONS)}]
    body = {"model": run.model, "max_tokens": run.answer_tokens, "messages": [{"role": "user", "content": parts}]}
    try:
        _json(client.post(CHAT, json=body))
    finally:
        _json(client.delete(f"/v1/context_caches/{made}"))


USES: Mapping[str, Use] = {
    "streams": streams,
    "leaves": leaves,
    "killed": killed,
    "uploads": uploads,
    "converses": converses,
    "contexts": contexts,
}


def missing(run: SoakRun) -> list[str]:
    """What the server has not, of what it said it has, and what it still has of what is gone."""
    found: list[str] = []
    with run.client() as client:
        path = f"/v1/collections/{COLLECTION}/documents"
        listed = {one["id"]: one for one in _json(client.get(path, params={"limit": 1000}))["data"]}
        for name, (document, mark) in run.kept.items():
            state = listed.get(document, {}).get("state")
            text = _json(client.get(f"{path}/{document}"))["text"] if state == "ready" else ""
            if mark not in text:
                found.append(f"{name} is {state}, and its text lacks its mark")
        found += [f"document {document} was deleted, and is there" for document in run.gone & set(listed)]
        for made, answers in run.told.items():
            messages = _json(client.get(f"/v1/conversations/{made}/messages"))["data"]
            if [one["content"] for one in messages if one["role"] == "assistant"] != answers:
                found.append(f"conversation {made} holds other answers than were shown")
    return found


def left_running(run: SoakRun) -> int:
    """Jobs and answers that go on though nobody waits for any."""
    with run.client() as client:
        deadline, left = monotonic() + PATIENCE_S, -1
        while left and monotonic() < deadline:
            states = [one["state"] for one in _json(client.get("/v1/jobs", params={"limit": 1000}))["data"]]
            answering = [one for one in _json(client.get("/v1/conversations"))["data"] if one["answering"]]
            left = sum(one in ("waiting", "running") for one in states) + len(answering)
            sleep(PAUSE_S)
    return left


def files_of(folder: Path) -> int:
    """That wait for a job, or were left behind."""
    return sum(one.is_file() and one.name not in ("id", "lock") for one in folder.rglob("*"))


def _check(response: httpx2.Response) -> None:
    if response.status_code != httpx2.codes.OK:
        response.read()
        response.raise_for_status()


def _json(response: httpx2.Response) -> dict[str, Any]:
    response.raise_for_status()
    told: dict[str, Any] = response.json()
    return told


def _events(lines: Iterator[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(id, name, data)"""
    fields: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            with suppress(ValueError):
                yield fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"])
            fields = {}
