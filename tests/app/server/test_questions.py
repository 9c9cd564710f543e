"""An answer of a conversation belongs to the server: whoever comes back finds it whole."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from app import RagPipeline, Settings
from app.answering.answerer import STOPPED
from app.answering.stream import CUT_OFF
from tests.app.server.conversing import FIRST, LONG, SECOND, ask, messages
from tests.app.server.event_streams import Told, asked, text_of
from tests.app.server.serving import served


def follow(client: httpx2.Client, path: str, mark: str = "") -> list[Told]:
    with asked(client, "GET", f"{path}/answer", headers={"Last-Event-ID": mark} if mark else {}) as events:
        return list(events)


def test_a_conversation_has_a_bound(client: httpx2.Client, conversation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.server.questions.MOST_MESSAGES", 2)
    body = {"question": FIRST, "max_tokens": 2, "stream": False}
    assert client.post(f"{conversation}/messages", json=body).status_code == 200
    refused = client.post(f"{conversation}/messages", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "limit")
    assert "begin another one" in refused.json()["error"]["message"]
    assert client.post(f"{conversation}/again", json={"max_tokens": 2, "stream": False}).status_code == 200
    assert len(messages(client, conversation)) == 2


def test_an_answer_comes_in_pieces_and_is_stored(client: httpx2.Client, conversation: str) -> None:
    events = ask(client, conversation)
    assert [one.name for one in events] == ["start", *["piece"] * (len(events) - 2), "done"]
    done = events[-1].data
    assert [done["question"], done["answer"]] == messages(client, conversation)
    assert done["answer"]["content"] == text_of(events)
    assert len(text_of(events)) > 3
    assert done["answer"]["report"]["prompt_tokens"] > 100
    assert done["question"]["support"] is None
    for one in done["answer"]["support"]:
        assert done["answer"]["content"][one["start"] : one["end"]].strip()
        assert one["citation"] is None or one["citation"] < len(done["answer"]["citations"])
    assert [one["source"] for one in done["answer"]["citations"]] == [
        one["source"] for one in events[0].data["citations"]
    ]
    assert client.get(conversation).json()["title"] == FIRST


def test_a_client_that_comes_back_at_any_event_finds_the_rest(client: httpx2.Client, conversation: str) -> None:
    events = ask(client, conversation)
    assert len({one.mark for one in events}) == len(events) > 5
    for place, one in enumerate(events):
        assert follow(client, conversation, one.mark) == events[place + 1 :]
    assert follow(client, conversation) == follow(client, conversation, "of-another-answer") == events
    assert follow(client, conversation, f"{events[0].data['id']}-999999999") == []


@pytest.mark.parametrize("left_at", [1, 2, 5])
def test_an_answer_goes_on_when_its_client_goes_away(client: httpx2.Client, conversation: str, left_at: int) -> None:
    with asked(client, "POST", f"{conversation}/messages", json=LONG | {"max_tokens": 100}) as events:
        seen = [next(events) for _ in range(left_at)]
    rest = follow(client, conversation, seen[-1].mark)
    assert rest[-1].data["answer"]["content"] == text_of([*seen, *rest])
    assert rest[-1].data["notes"] == [CUT_OFF], "and nobody stopped it"
    assert [seen, rest] == [(whole := follow(client, conversation))[:left_at], whole[left_at:]]


def test_two_clients_see_the_same(client: httpx2.Client, conversation: str) -> None:
    with ThreadPoolExecutor(4) as threads, asked(client, "POST", f"{conversation}/messages", json=LONG) as events:
        seen = [next(events)]
        others = [threads.submit(follow, client, conversation) for _ in range(4)]
        client.post(f"{conversation}/stop")
        seen += events
        assert [one.result() for one in others] == [seen] * 4


def test_stop_ends_the_answer_and_keeps_what_came(client: httpx2.Client, conversation: str) -> None:
    with asked(client, "POST", f"{conversation}/messages", json=LONG) as events:
        seen = [next(events), next(events), next(events)]
        assert client.post(f"{conversation}/stop").json() == {"stopping": True}
        seen += events
    done = seen[-1].data
    assert STOPPED in done["notes"]
    assert done["answer"]["report"]["answer_tokens"] < 1200
    assert [one["content"] for one in messages(client, conversation)] == [FIRST, text_of(seen)]
    assert client.post(f"{conversation}/stop").json() == {"stopping": False}


def test_one_answer_at_a_time(client: httpx2.Client, conversation: str) -> None:
    with asked(client, "POST", f"{conversation}/messages", json=LONG) as events:
        next(events)
        assert client.get(conversation).json()["answering"] is True
        refused = client.post(f"{conversation}/messages", json={"question": SECOND})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "answering")
        client.post(f"{conversation}/stop")
        assert [*events][-1].name == "done"
    assert ask(client, conversation, SECOND)[-1].name == "done"  # at once: what is told as done has ended


def test_a_follow_up_knows_what_went_before(client: httpx2.Client, conversation: str) -> None:
    ask(client, conversation)
    report = ask(client, conversation, SECOND)[-1].data["answer"]["report"]
    assert "condense" in report["seconds"]
    assert [one["content"] for one in messages(client, conversation)][::2] == [FIRST, SECOND]
    assert client.get(conversation).json()["title"] == FIRST


def test_an_answer_whole(client: httpx2.Client, conversation: str) -> None:
    ended = client.post(f"{conversation}/messages", json={"question": FIRST, "stream": False})
    assert ended.status_code == 200
    assert [ended.json()["question"], ended.json()["answer"]] == messages(client, conversation)
    assert follow(client, conversation)[-1].data == ended.json()


def test_the_last_question_again_uses_no_cache_and_stores_nothing(client: httpx2.Client, conversation: str) -> None:
    assert client.post(f"{conversation}/again", json={}).status_code == 404  # nothing was asked
    options = {"temperature": 0.0, "max_tokens": 8}
    ask(client, conversation, **options)
    second = ask(client, conversation, SECOND, **options)[-1].data["answer"]
    before = messages(client, conversation)
    again = client.post(f"{conversation}/again", json=options | {"stream": False}).json()["answer"]
    assert messages(client, conversation) == before
    assert again["report"]["linker"] == "full"
    assert {one["tier"] for one in again["report"]["chunks"]} == {"computed"}
    assert [one["chunk"] for one in again["report"]["chunks"]] == [one["chunk"] for one in second["report"]["chunks"]]
    assert again["report"]["prompt_tokens"] == second["report"]["prompt_tokens"]
    full = client.post(f"{conversation}/messages", json=options | {"question": "x", "linker": "full", "stream": False})
    assert full.json()["answer"]["report"]["linker"] == "full"


def test_a_question_takes_the_place_of_an_earlier_one(client: httpx2.Client, conversation: str) -> None:
    first = ask(client, conversation, max_tokens=4)[-1].data["question"]
    ask(client, conversation, SECOND, max_tokens=4)
    events = ask(client, conversation, "Who kept the light?", max_tokens=4, instead_of=first["id"])
    told = {"question": "Who kept the light?", "instead_of": first["id"], "compares": False}
    assert {name: events[0].data[name] for name in told} == told
    assert [one["content"] for one in messages(client, conversation)] == [told["question"], text_of(events)]
    for gone in (first["id"], events[-1].data["answer"]["id"]):
        body = {"question": FIRST, "instead_of": gone}
        assert client.post(f"{conversation}/messages", json=body).status_code == 404
    assert len(messages(client, conversation)) == 2


def test_a_question_of_another_conversation_stays(client: httpx2.Client, conversation: str) -> None:
    other = f"/v1/conversations/{client.post('/v1/conversations', json={}).json()['id']}"
    theirs = ask(client, other, max_tokens=4)[-1].data["question"]["id"]
    ask(client, conversation, max_tokens=4)
    body = {"question": FIRST, "instead_of": theirs}
    assert client.post(f"{conversation}/messages", json=body).status_code == 404
    assert len(messages(client, other)) == len(messages(client, conversation)) == 2
    client.delete(other)


def test_a_deletion_ends_the_answer_and_leaves_nothing(client: httpx2.Client, conversation: str) -> None:
    with asked(client, "POST", f"{conversation}/messages", json=LONG) as events:
        next(events)
        assert client.delete(conversation).json()["deleted"] is True
        last = [*events][-1]
    assert (last.name, last.data["error"]["type"]) == ("error", "not_found_error")
    for path in ("", "/messages", "/answer", "/export"):
        assert client.get(f"{conversation}{path}").status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"question": ""}, 400),
        ({"question": "  "}, 400),
        ({"question": "a\ud800b"}, 400),
        ({"question": FIRST, "max_tokens": 5000}, 400),
        ({"question": FIRST, "max_tokens": 0}, 400),
        ({"question": FIRST, "linker": "nope"}, 400),
        ({"question": FIRST, "collection": "another"}, 400),
        ({"question": "word " * 5000}, 400),
        ({"question": FIRST, "top_p": 0}, 400),
    ],
)
def test_what_cannot_be_asked_is_told_at_once(
    client: httpx2.Client, conversation: str, body: dict[str, Any], status: int
) -> None:
    refused = client.post(f"{conversation}/messages", content=json.dumps(body).encode())
    assert refused.status_code == status, refused.text
    assert client.get(conversation).json()["answering"] is False


def test_what_breaks_later_is_an_event(client: httpx2.Client, conversation: str) -> None:
    events = ask(client, conversation, documents=["nowhere.md"])
    assert [one.name for one in events] == ["error"]
    assert "nowhere.md" in events[0].data["error"]["message"]
    whole = client.post(f"{conversation}/messages", json={"question": FIRST, "documents": ["x"], "stream": False})
    assert whole.status_code == 404
    assert messages(client, conversation) == []


def test_when_the_server_ends_what_came_is_stored(sampled: Settings) -> None:
    with served(sampled) as client:
        path = f"/v1/conversations/{client.post('/v1/conversations', json={}).json()['id']}"
        with asked(client, "POST", f"{path}/messages", json=LONG) as events:
            seen = [next(events), next(events)]
    with RagPipeline(sampled) as pipeline:
        stored = pipeline.library.catalog.conversations.messages(path.rpartition("/")[2])
        pipeline.library.catalog.conversations.delete(path.rpartition("/")[2])
    assert [one.content for one in stored][:1] == [FIRST]
    assert stored[1].content.startswith(text_of(seen))


def test_another_server_tells_the_stored_answer(sampled: Settings) -> None:
    with RagPipeline(sampled) as pipeline:
        before = pipeline.conversation()
        before.ask(FIRST)
    with served(sampled) as client:
        path = f"/v1/conversations/{before.id}"
        (only,) = follow(client, path, "0123456789ab-7")
        assert (only.name, only.data["answer"]) == ("done", messages(client, path)[1])
        client.delete(path)
