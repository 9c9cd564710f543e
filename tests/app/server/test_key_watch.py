"""An answer ends with its key, also where its stream has begun before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import httpx2
import pytest

from app import Settings
from app.answering.stream import AnswerStream
from app.errors import CatalogError
from app.ingestion.spool import FOLDER
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.serving_records import Scope
from app.library.catalog.tables import now
from app.server.key_watch import KeyWatch
from app.server.problems import RefusedRequest
from app.server.service import Service, model_name
from tests.app.server.event_streams import asked
from tests.app.server.serving import beside, serving
from tests.waiting import wait_until

ENDS_S = 30.0  # it takes none
LONG = {"max_tokens": 1200, "temperature": 2.0, "seed": 1}
CHAT = {"messages": [{"role": "user", "content": "Hello"}], **LONG}
QUESTION = {"question": "Who designed the lighthouse?", **LONG}
REFUSED = "this key has expired or was revoked meanwhile: ask again with one that is good"


class Keyed:
    def __init__(self, client: httpx2.Client, service: Service, catalog: Catalog):
        self.client, self.service, self.catalog = client, service, catalog  # `catalog`: as another process has it
        self.started: list[AnswerStream] = []
        service.pipeline.watchers.append(self.started.append)

    def key(self, scope: Scope = "read") -> tuple[str, dict[str, str]]:
        key, token = self.catalog.keys.create("brief", [scope])
        return key.id, {"Authorization": f"Bearer {token}"}

    def answers(self) -> int:
        return sum(thread.name.startswith("generation-") for thread in threading.enumerate())

    @property
    def model(self) -> str:
        return model_name(self.service.settings.model)


@pytest.fixture(scope="module")
def keyed(sampled: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    settings = beside(sampled, tmp_path_factory.mktemp("watched"))
    with open_catalog(settings) as catalog:
        _, admin = catalog.keys.create("admin", ["admin"])
        service = Service(settings)
        with serving(service, {"Authorization": f"Bearer {admin}"}) as client:
            yield Keyed(client, service, catalog)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.server.key_watch.LOOK_S", 0.02)


@pytest.mark.parametrize(("path", "asks"), [("chat/completions", CHAT), ("completions", {"prompt": "Hello", **LONG})])
def test_a_stream_ends_with_its_key_and_so_does_its_answer(keyed: Keyed, path: str, asks: dict[str, Any]) -> None:
    key_id, headers = keyed.key()
    body = asks | {"model": keyed.model, "stream": True}
    with keyed.client.stream("POST", f"/v1/{path}", json=body, headers=headers) as response:
        assert response.status_code == 200, response.read()
        lines = (line for line in response.iter_lines() if line)
        seen = [next(lines)]
        keyed.catalog.keys.revoke(key_id)
        seen += lines
    assert seen[-1] == "data: [DONE]"
    assert REFUSED in seen[-2] and '"authentication_error"' in seen[-2] and '"invalid_api_key"' in seen[-2]
    wait_until(lambda: keyed.service.turns.running == 0, ENDS_S)
    assert keyed.client.get("/v1/models", headers=headers).status_code == 401, "it is remembered no longer"


def test_a_whole_answer_is_refused_when_its_key_expires(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = keyed.catalog.keys.create("brief", ["read"], expires=now() + timedelta(hours=1))
    body = CHAT | {"model": keyed.model}
    with ThreadPoolExecutor() as pool:
        headers = {"Authorization": f"Bearer {token}"}
        asking = pool.submit(keyed.client.post, "/v1/chat/completions", json=body, headers=headers)
        wait_until(lambda: keyed.service.turns.running, ENDS_S)
        monkeypatch.setattr("app.library.catalog.keys.now", lambda: now() + timedelta(hours=2))
        refused = asking.result()
    assert (refused.status_code, refused.json()["error"]["message"]) == (401, REFUSED)


@pytest.fixture
def conversation(keyed: Keyed) -> tuple[str, dict[str, str], str]:
    """The id of a key, what says it, and the path of a conversation of its own."""
    key_id, headers = keyed.key()
    made = keyed.client.post("/v1/conversations", json={}, headers=headers)
    return key_id, headers, f"/v1/conversations/{made.json()['id']}"


def test_an_answer_of_a_conversation_ends_with_its_key(
    keyed: Keyed, conversation: tuple[str, dict[str, str], str]
) -> None:
    key_id, headers, path = conversation
    with asked(keyed.client, "POST", f"{path}/messages", json=QUESTION, headers=headers) as events:
        assert next(events).name == "start"
        keyed.catalog.keys.revoke(key_id)
        *_, last = events
    assert (last.name, last.data["error"]["message"]) == ("error", REFUSED)
    wait_until(lambda: not keyed.answers(), ENDS_S)
    assert keyed.started[-1].finish_reason == "cancelled", "nothing more is computed for it"


def test_one_that_ends_with_its_key_takes_no_other_s_place(
    keyed: Keyed, conversation: tuple[str, dict[str, str], str]
) -> None:
    key_id, headers, path = conversation
    body = QUESTION | {"max_tokens": 4, "stream": False}
    first = keyed.client.post(f"{path}/messages", json=body, headers=headers).json()["question"]["id"]
    before = keyed.catalog.conversations.messages(path.rpartition("/")[2])
    again = QUESTION | {"instead_of": first}
    with asked(keyed.client, "POST", f"{path}/messages", json=again, headers=headers) as events:
        assert [next(events).name, next(events).name] == ["start", "piece"]
        keyed.catalog.keys.revoke(key_id)
        assert [*events][-1].data["stored"] is None
    wait_until(lambda: not keyed.answers(), ENDS_S)
    assert keyed.catalog.conversations.messages(path.rpartition("/")[2]) == before


def test_so_does_a_whole_one(keyed: Keyed, conversation: tuple[str, dict[str, str], str]) -> None:
    key_id, headers, path = conversation
    body = QUESTION | {"stream": False}
    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(keyed.client.post, f"{path}/messages", json=body, headers=headers)
        wait_until(lambda: keyed.answers() or asking.done(), ENDS_S)
        keyed.catalog.keys.revoke(key_id)
        assert (asking.result().status_code, asking.result().json()["error"]["message"]) == (401, REFUSED)
    wait_until(lambda: not keyed.answers(), ENDS_S)


def test_events_of_a_job_end_with_its_key(keyed: Keyed) -> None:
    key_id, headers = keyed.key("ingest")
    waits = {"name": "a.md", "file": "a.md", "sha256": "0", "size": 1, "place": "a folder of another machine"}
    job = keyed.catalog.jobs.create(keyed.catalog.collections.get("default"), waits, key_id)
    with asked(keyed.client, "GET", f"/v1/jobs/{job.id}/events", headers=headers) as events:
        assert next(events).data["state"] == "queued"
        keyed.catalog.keys.revoke(key_id)
        *_, last = events
    assert (last.name, last.data["error"]["message"]) == ("error", REFUSED)


def test_one_look_tells_it_of_all_keys_and_there_is_none_where_nobody_answers() -> None:
    looks = list[set[str]]()
    ended = list[str]()

    watched = threading.Event()

    def lapsed(ids: Collection[str]) -> set[str]:
        if not watched.is_set():
            return set()
        looks.append(set(ids))
        return {"a"} if len(looks) > 1 else set()

    watch = KeyWatch(lapsed)
    with ExitStack() as answers:
        for key_id in ("a", "b", "a", ""):
            answers.enter_context(watch.watching(key_id, lambda _, key_id=key_id: ended.append(key_id)))  # type: ignore[misc]
        watched.set()
        wait_until(lambda: len(looks) > 3, ENDS_S)
        assert ended == ["a", "a"]
        assert looks[:2] == [{"a", "b"}] * 2
        assert looks[3] == {"b"}
    watch.close()
    assert all(looks), "no look for nobody"


def test_a_catalog_that_is_away_ends_no_answer() -> None:
    looks, again = list[Collection[str]](), threading.Event()

    def lapsed(ids: Collection[str]) -> set[str]:
        looks.append(ids)
        if len(looks) > 1:
            again.set()
        raise CatalogError("the catalog is away")

    watch = KeyWatch(lapsed)

    async def never() -> None:
        ending = asyncio.ensure_future(watch.end_of("a"))
        assert await asyncio.to_thread(again.wait, ENDS_S)
        assert not ending.done()
        ending.cancel()

    asyncio.run(never())
    watch.close()


def test_a_fault_of_a_look_or_of_one_end_keeps_no_other_from_ending() -> None:
    looks, ended = list[Collection[str]](), list[str]()

    def lapsed(ids: Collection[str]) -> Collection[str]:
        looks.append(ids)
        if len(looks) == 1:
            raise KeyError("a row that nobody expects")
        return ids

    def broken(_: RefusedRequest) -> None:
        raise TypeError("a bug in what ends")

    watch = KeyWatch(lapsed)
    with watch.watching("a", broken), watch.watching("b", lambda _: ended.append("b")):
        wait_until(lambda: bool(ended), ENDS_S)
    with watch.watching("c", lambda _: ended.append("c")):
        wait_until(lambda: ended == ["b", "c"], ENDS_S)
    watch.close()


def test_where_there_is_no_thread_a_key_is_refused_and_the_next_one_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    looks, ended = list[Collection[str]](), list[str]()

    def lapsed(ids: Collection[str]) -> Collection[str]:
        looks.append(ids)
        return ids

    watch, idle = KeyWatch(lapsed), KeyWatch(lapsed)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RefusedRequest, match="no thread left"), watch.watching("a", lambda _: ended.append("a")):
            pytest.fail("nobody watches it")
        assert asyncio.run(idle.end_of("a")).refused_with == 503
    idle.close()  # whose thread never began
    with watch.watching("b", lambda _: ended.append("b")):
        wait_until(lambda: ended == ["b"], ENDS_S)
    watch.close()
    assert [set(ids) for ids in looks] == [{"b"}], "nothing is left of the one that was refused"


def test_a_document_that_comes_on_when_its_key_is_revoked_makes_no_job(keyed: Keyed) -> None:
    key_id, headers = keyed.key("ingest")
    collection = keyed.catalog.collections.all()[0].name
    uploads = keyed.service.settings.data_dir / FOLDER

    def body() -> Iterator[bytes]:
        yield b"The bakery"
        wait_until(lambda: [*uploads.glob("*/*.txt")], ENDS_S)  # it is let in, and comes
        keyed.catalog.keys.revoke(key_id)
        yield b" opens at six."

    refused = keyed.client.put(f"/v1/collections/{collection}/documents/a.txt", content=body(), headers=headers)
    assert (refused.status_code, refused.json()["error"]["message"]) == (401, REFUSED)
    assert refused.json()["error"]["code"] == "invalid_api_key" and "WWW-Authenticate" in refused.headers
    assert keyed.catalog.jobs.all(owner=key_id) == []


def test_a_document_comes_no_further_when_its_key_is_revoked(keyed: Keyed) -> None:
    """However much of it is still to come."""
    key_id, headers = keyed.key("ingest")
    collection = keyed.catalog.collections.all()[0].name
    uploads = keyed.service.settings.data_dir / FOLDER
    ends, sent = monotonic() + ENDS_S, 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        yield b"The bakery"
        wait_until(lambda: [*uploads.glob("*/*.txt")], ENDS_S)
        keyed.catalog.keys.revoke(key_id)
        while [*uploads.glob("*/*.txt")] and monotonic() < ends:
            sent += 1
            yield b" opens at six."
            sleep(0.01)

    refused = keyed.client.put(f"/v1/collections/{collection}/documents/b.txt", content=body(), headers=headers)
    assert (refused.status_code, refused.json()["error"]["message"]) == (401, REFUSED)
    assert monotonic() < ends and sent, "it did not come to its end first"
