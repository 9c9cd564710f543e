"""A server's conversations by its client: listed, followed while they are answered, stopped, compared and kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from app import Settings
from app.client import conversations
from app.client.address import NamedServer
from app.client.connection import ServerConnection, ServerError
from app.client.conversations import FollowedAnswer
from tests.app.server.serving import served

QUESTION = "Who designed the lighthouse?"
LONG = {"max_tokens": 1200, "temperature": 2.0, "seed": 1}


@pytest.fixture(scope="module")
def connection(sampled: Settings) -> Iterator[ServerConnection]:
    with served(sampled) as client:
        yield ServerConnection(NamedServer.read(str(client.base_url), None, "here", "KEY", ""))


@pytest.fixture
def name(connection: ServerConnection) -> Iterator[str]:
    made = str(conversations.create(connection, "default")["id"])
    yield made
    conversations.delete(connection, made)


def ask(connection: ServerConnection, name: str, question: str = QUESTION, **choices: Any) -> FollowedAnswer:
    conversations.send(connection, name, question, {"max_tokens": 6, **choices})
    *_, last = conversations.follow(connection, name)
    return last


def test_an_answer_is_followed_and_found_again(connection: ServerConnection, name: str) -> None:
    first = ask(connection, name)
    assert (first.question, first.compares, first.instead_of, first.error) == (QUESTION, False, None, "")
    assert first.message is not None and first.message["content"] == first.text and first.ended
    (asked, said), earlier = conversations.messages(connection, name)
    assert (asked["content"], said, earlier) == (QUESTION, first.message, 0)
    assert [one["source"] for one in first.citations] == [one["source"] for one in said["citations"]]
    *_, again = conversations.follow(connection, name)
    assert again == first
    new = ask(connection, name, "How tall is it?", instead_of=asked["id"])
    assert new.instead_of == asked["id"]
    stored, _ = conversations.messages(connection, name)
    assert [one["content"] for one in stored] == ["How tall is it?", new.text]
    assert conversations.messages(connection, name, last=1) == (stored[1:], 1)


def test_who_goes_away_and_stops_it_finds_what_came(connection: ServerConnection, name: str) -> None:
    conversations.send(connection, name, QUESTION, LONG)
    for answer in conversations.follow(connection, name):
        if answer.text:
            break
    assert conversations.card(connection, name)["answering"] is True
    with pytest.raises(ServerError) as raised:
        conversations.send(connection, name, "And then?", {})
    assert raised.value.answered == 409
    conversations.stop(connection, name)
    *_, last = conversations.follow(connection, name)
    assert last.message is not None and last.message["report"]["answer_tokens"] < 1200
    (_, said), _ = conversations.messages(connection, name)
    assert said["content"] == last.text


def test_a_comparison_is_not_kept(connection: ServerConnection, name: str) -> None:
    ask(connection, name)
    conversations.compare(connection, name, {"max_tokens": 6})
    *_, plain = conversations.follow(connection, name)
    assert plain.compares and plain.message is not None and plain.message["report"]["linker"] == "full"
    stored, _ = conversations.messages(connection, name)
    assert len(stored) == 2


def test_they_are_named_looked_for_and_exported(connection: ServerConnection, name: str) -> None:
    conversations.rename(connection, name, "Zürich & Tarrow")
    (found,), more = conversations.page(connection, "zürich &")
    assert (found["id"], found["title"], more) == (name, "Zürich & Tarrow", False)
    assert conversations.page(connection, "nowhere said") == ([], False)
    assert name not in [one["id"] for one in conversations.page(connection, after=name)[0]]
    assert json.loads(conversations.export(connection, name, "json"))["conversation"] == found
    assert b"# Z\xc3\xbcrich" in conversations.export(connection, name, "markdown")


@pytest.mark.parametrize("data", [{}, {"question": "q", "compares": False, "instead_of": None, "citations": 7}])
def test_what_is_of_another_version_is_told(
    connection: ServerConnection, name: str, monkeypatch: pytest.MonkeyPatch, data: Mapping[str, Any]
) -> None:
    ask(connection, name)
    taken = conversations.take
    monkeypatch.setattr(conversations, "take", lambda answer, kind, told: taken(answer, "start", data))
    with pytest.raises(ServerError, match="another version"):
        list(conversations.follow(connection, name))
