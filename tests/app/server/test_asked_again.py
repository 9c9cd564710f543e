"""Questions that take the place of earlier ones, and answers that are compared: nothing else goes."""

from __future__ import annotations

import httpx2
import pytest

from app import RagPipeline, Settings
from app.answering.conversation import Conversation
from app.answering.stream import BROKEN
from app.errors import Conflict
from app.library.catalog.records import NewMessage
from tests.app.breaking import breaking
from tests.app.server.conversing import FIRST, LONG, SECOND, ask, messages
from tests.app.server.event_streams import asked, text_of
from tests.app.server.serving import served


def test_an_answer_that_breaks_off_takes_no_other_s_place(client: httpx2.Client, conversation: str) -> None:
    first = ask(client, conversation, max_tokens=4)[-1].data["question"]["id"]
    before = messages(client, conversation)
    with breaking(8):
        *pieces, last = ask(client, conversation, "Who kept the light?", max_tokens=60, instead_of=first)
    assert text_of(pieces) and (last.name, last.data["stored"]) == ("error", None)
    assert messages(client, conversation) == before
    with breaking(8):
        *pieces, last = ask(client, conversation, SECOND, max_tokens=60)
    asked, said = messages(client, conversation)[2:]
    assert (last.name, last.data["stored"]) == ("error", {"question": asked["id"], "answer": said["id"]})
    assert said["content"].startswith(text_of(pieces)) and BROKEN in said["notes"]
    assert (
        ask(client, conversation, SECOND, max_tokens=4, instead_of=last.data["stored"]["question"])[-1].name == "done"
    )
    assert [one["content"] for one in messages(client, conversation)][::2] == [FIRST, SECOND]


def test_when_the_server_ends_what_is_asked_again_stays(sampled: Settings) -> None:
    with served(sampled) as client:
        path = f"/v1/conversations/{client.post('/v1/conversations', json={}).json()['id']}"
        first = ask(client, path, max_tokens=4)[-1].data["question"]["id"]
        before = messages(client, path)
        with asked(client, "POST", f"{path}/messages", json=LONG | {"instead_of": first}) as events:
            next(events)
            next(events)
    with RagPipeline(sampled) as pipeline:
        stored = pipeline.library.catalog.conversations.messages(path.rpartition("/")[2])
        pipeline.library.catalog.conversations.delete(path.rpartition("/")[2])
    assert [one.content for one in stored] == [one["content"] for one in before]


def test_what_a_client_has_not_seen_is_kept(client: httpx2.Client, conversation: str) -> None:
    done = ask(client, conversation, max_tokens=4)[-1].data
    seen = {"newest": done["answer"]["id"], "max_tokens": 4, "stream": False}
    assert client.post(f"{conversation}/again", json=seen).status_code == 200
    ask(client, conversation, SECOND, max_tokens=4)  # by another tab
    before = messages(client, conversation)
    again = {"question": FIRST, "instead_of": done["question"]["id"]} | seen
    for path, body in (("messages", again), ("messages", {"question": "Who?"} | seen), ("again", seen)):
        refused = client.post(f"{conversation}/{path}", json=body)
        assert (refused.status_code, refused.json()["error"]["type"]) == (409, "conflict_error")
        assert "gone on elsewhere" in refused.json()["error"]["message"]
        assert client.get(conversation).json()["answering"] is False
    assert messages(client, conversation) == before
    assert client.post(f"{conversation}/messages", json=again | {"newest": before[-1]["id"]}).status_code == 200
    assert [one["content"] for one in messages(client, conversation)][::2] == [FIRST]


def test_what_comes_while_an_answer_is_made_is_kept(
    client: httpx2.Client, conversation: str, pipeline: RagPipeline
) -> None:
    done = ask(client, conversation, max_tokens=4)[-1].data
    newest, name = done["answer"]["id"], conversation.rpartition("/")[2]
    body = LONG | {"max_tokens": 60, "instead_of": done["question"]["id"], "newest": newest}
    with asked(client, "POST", f"{conversation}/messages", json=body) as events:
        next(events)
        pipeline.library.catalog.conversations.add(name, [NewMessage("user", SECOND)])  # by another program
        *_, last = events
    assert (last.name, last.data["error"]["type"], last.data["stored"]) == ("error", "conflict_error", None)
    assert [one["content"] for one in messages(client, conversation)][::2] == [FIRST, SECOND]
    conversations = pipeline.library.catalog.conversations
    stale = Conversation(pipeline.start, pipeline.library.catalog, "default", name, newest)
    with pytest.raises(Conflict, match="gone on elsewhere"):
        stale.again(linker="full")
    assert conversations.count_messages(name) == 3


@pytest.mark.parametrize("seed", [{}, {"seed": 7}])
def test_what_is_compared_is_sampled_alike(client: httpx2.Client, conversation: str, seed: dict[str, int]) -> None:
    """With the linker that uses no cache both are the same words, though the server drew what they were sampled by."""
    options = {"temperature": 2.0, "max_tokens": 12}
    said = ask(client, conversation, linker="full", **options, **seed)[-1].data["answer"]
    again = client.post(f"{conversation}/again", json=options | {"stream": False}).json()["answer"]
    assert again["content"] == said["content"]
    assert again["report"]["seed"] == said["report"]["seed"] == seed.get("seed", said["report"]["seed"])
    other = ask(client, conversation, linker="full", **options)[-1].data["answer"]
    assert isinstance(other["report"]["seed"], int) and other["report"]["seed"] != said["report"]["seed"]
    greedy = ask(client, conversation, temperature=0.0, max_tokens=2)[-1].data["answer"]
    assert greedy["report"]["seed"] is None
