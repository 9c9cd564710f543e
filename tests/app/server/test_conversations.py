"""Conversations, listed, named, kept as files and deleted; those of others are not there."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
import pytest
from markdown_it import MarkdownIt

from app import RagPipeline, Settings
from app.library.catalog import Catalog
from app.library.catalog.records import NewMessage

HOSTILE = "# Title\r\n\r\nid: 7\nevent: done\ndata: {}\n\n<img src=x onerror=alert(1)> [x](javascript:x) \u202e\x00"


@pytest.fixture
def catalog(sampled: Settings, client: httpx2.Client) -> Iterator[Catalog]:
    """The server's own. What a test leaves in it goes."""
    with RagPipeline(sampled) as pipeline:
        conversations = pipeline.library.catalog.conversations
        before = {one.id for one in conversations.all()}
        yield pipeline.library.catalog
        for one in conversations.all():
            if one.id not in before:
                conversations.delete(one.id)


def test_the_last_used_comes_first_page_by_page(client: httpx2.Client, catalog: Catalog) -> None:
    made = [client.post("/v1/conversations", json={"title": str(number)}).json()["id"] for number in range(5)]
    catalog.conversations.add(made[1], [NewMessage("user", "a"), NewMessage("assistant", "b")])
    expected = [made[1], made[4], made[3], made[2], made[0]]
    seen: list[str] = []
    while True:
        page = client.get("/v1/conversations", params={"limit": 2, **({"after": seen[-1]} if seen else {})}).json()
        seen += [one["id"] for one in page["data"]]
        if not page["has_more"]:
            break
    assert seen[:5] == expected
    assert client.get("/v1/conversations", params={"after": "nope"}).status_code == 404
    assert client.get("/v1/conversations", params={"limit": 0}).status_code == 400


def test_a_conversation_is_made_renamed_and_deleted(client: httpx2.Client, catalog: Catalog) -> None:
    made = client.post("/v1/conversations", json={"collection": "default", "title": "one"}).json()
    path = f"/v1/conversations/{made['id']}"
    assert made == client.get(path).json()
    assert (made["title"], made["collection"], made["answering"]) == ("one", "default", False)
    assert client.patch(path, json={"title": HOSTILE}).json()["title"] == HOSTILE
    assert client.get(path).json()["title"] == HOSTILE
    assert client.get(f"{path}/messages").json()["data"] == []
    assert client.delete(path).json() == {"id": made["id"], "deleted": True}
    assert client.delete(path).status_code == 404
    assert client.post("/v1/conversations", json={"collection": "nope"}).status_code == 404


@pytest.mark.parametrize("body", [{"title": "x" * 201}, {"title": 1}, {"name": "x"}, {"title": "\ud800"}, [], None])
def test_what_is_no_conversation_is_refused(client: httpx2.Client, catalog: Catalog, body: object) -> None:
    before = len(catalog.conversations.all())
    assert client.post("/v1/conversations", content=json.dumps(body).encode()).status_code == 400
    assert len(catalog.conversations.all()) == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PATCH", "", {"title": "mine"}),
        ("DELETE", "", None),
        ("GET", "/messages", None),
        ("POST", "/messages", {"question": "What?"}),
        ("POST", "/again", {}),
        ("GET", "/answer", None),
        ("POST", "/stop", None),
        ("GET", "/export", None),
    ],
)
def test_one_of_another_owner_is_as_one_that_never_was(
    client: httpx2.Client, catalog: Catalog, method: str, path: str, body: object
) -> None:
    foreign = catalog.conversations.create(catalog.collections.get("default"), "secret", "somebody")
    catalog.conversations.add(foreign.id, [NewMessage("user", "secret"), NewMessage("assistant", "secret")])
    never = "0" * 32
    refused, unknown = (
        client.request(method, f"/v1/conversations/{one}{path}", json=body) for one in (foreign.id, never)
    )
    assert refused.status_code == unknown.status_code == 404
    assert refused.text.replace(foreign.id, never) == unknown.text
    listed = client.get("/v1/conversations").json()["data"]
    assert foreign.id not in [one["id"] for one in listed]
    assert client.get("/v1/conversations", params={"after": foreign.id}).status_code == 404
    assert catalog.conversations.get(foreign.id).title == "secret"


def test_a_conversation_is_kept_as_json(client: httpx2.Client, catalog: Catalog) -> None:
    path = f"/v1/conversations/{client.post('/v1/conversations', json={'title': HOSTILE}).json()['id']}"
    catalog.conversations.add(path.rpartition("/")[2], [NewMessage("user", HOSTILE), NewMessage("assistant", HOSTILE)])
    kept = client.get(f"{path}/export", params={"format": "json"})
    assert kept.json() == {
        "conversation": client.get(path).json(),
        "messages": client.get(f"{path}/messages").json()["data"],
    }
    assert kept.headers["content-disposition"] == f'attachment; filename="conversation-{path.rpartition("/")[2]}.json"'


def test_a_conversation_is_kept_as_markdown(client: httpx2.Client, catalog: Catalog) -> None:
    path = f"/v1/conversations/{client.post('/v1/conversations', json={'title': HOSTILE}).json()['id']}"
    said = NewMessage("assistant", HOSTILE, notes=("no quotes: it cannot use /srv/acme/catalog",))
    catalog.conversations.add(path.rpartition("/")[2], [NewMessage("user", HOSTILE), said])
    kept = client.get(f"{path}/export", params={"format": "markdown"})
    assert kept.headers["content-type"].startswith("text/markdown")
    assert "\n" not in kept.headers["content-disposition"]
    headings = [one for one in MarkdownIt("commonmark").parse(kept.text) if one.type == "heading_open"]
    assert [one.tag for one in headings] == ["h1", "h2", "h2"]
    assert "Note: no quotes: it cannot use …\n" in kept.text and "acme" not in kept.text


def test_what_is_no_text_is_told_as_text(client: httpx2.Client, catalog: Catalog) -> None:
    """As names of files on a disk may be."""
    conversation = catalog.conversations.create(catalog.collections.get("default"), "a\udc80b")
    said = NewMessage(
        "assistant", "c\ud800d", ({"source": "/docs/e\udcfff.md"},), {"incidents": ["\udc80"]}, notes=("at /srv/x",)
    )
    catalog.conversations.add(conversation.id, [NewMessage("user", "q"), said])
    path = f"/v1/conversations/{conversation.id}"
    assert client.get(path).json()["title"] == "a?b"
    (_, told) = client.get(f"{path}/messages").json()["data"]
    assert (told["content"], told["citations"], told["report"]) == (
        "c?d",
        [{"source": "/docs/e?f.md"}],
        {"incidents": ["?"]},
    )
    assert told["notes"] == ["at …"], "and where a server keeps things is nobody's business"
    assert '"c?d"' in (last := client.get(f"{path}/answer").text)
    assert last.count("at \\u2026") == 2, "of the message, and of the answer's end"


def test_a_question_that_stands_alone_has_no_answer(client: httpx2.Client, catalog: Catalog) -> None:
    conversation = catalog.conversations.create(catalog.collections.get("default"), "t")
    for said in ([NewMessage("user", "first"), NewMessage("assistant", "said")], [NewMessage("user", "alone")]):
        catalog.conversations.add(conversation.id, said)
    told = client.get(f"/v1/conversations/{conversation.id}/answer").text
    assert '"alone"' in told and '"answer":null' in told.replace(": ", ":")


def test_words_are_looked_for_in_titles_and_messages(client: httpx2.Client, catalog: Catalog) -> None:
    made = [
        client.post("/v1/conversations", json={"title": one}).json()["id"] for one in ("Über Häfen", "100 % b_c", "")
    ]
    catalog.conversations.add(made[2], [NewMessage("user", "Who?"), NewMessage("assistant", "The KEEPER of Tarrow")])

    def found(words: str) -> list[str]:
        return [one["id"] for one in client.get("/v1/conversations", params={"q": words}).json()["data"]]

    assert found("häfen") == found("ÜBER") == [made[0]]
    assert found("keeper of") == found(" Who? ") == [made[2]]
    assert found("0 %") == found("b_c") == [made[1]]
    assert found("b%c") == found("nowhere said") == found("KEEPER\0 at") == []


def test_words_find_nothing_of_other_owners(client: httpx2.Client, catalog: Catalog) -> None:
    default = catalog.collections.get("default")
    catalog.conversations.create(default, "the secret quay", owner="somebody")
    assert client.get("/v1/conversations", params={"q": "secret quay"}).json()["data"] == []


def test_the_end_of_a_long_one_is_told_alone(client: httpx2.Client, catalog: Catalog) -> None:
    made = str(client.post("/v1/conversations", json={"title": "long"}).json()["id"])
    catalog.conversations.add(made, [NewMessage("user" if n % 2 == 0 else "assistant", f"m{n}") for n in range(6)])
    path = f"/v1/conversations/{made}/messages"

    def told(**query: int) -> tuple[list[str], int]:
        found = client.get(path, params=query).json()
        return [one["content"] for one in found["data"]], found["earlier"]

    every = [f"m{n}" for n in range(6)]
    assert told() == (every, 0) == told(last=6) == told(last=7)
    assert told(last=2) == (every[4:], 4)
    assert client.get(path, params={"last": 0}).status_code == 400


def test_messages_take_the_place_of_an_earlier_question(client: httpx2.Client, catalog: Catalog) -> None:
    made = client.post("/v1/conversations", json={"title": "t"}).json()["id"]
    other = client.post("/v1/conversations", json={"title": "o"}).json()["id"]
    for name in (made, other):
        for number in range(3):
            catalog.conversations.add(name, [NewMessage("user", f"q{number}"), NewMessage("assistant", f"a{number}")])
    second = catalog.conversations.messages(made)[2]
    catalog.conversations.add(made, [NewMessage("user", "new"), NewMessage("assistant", "!")], instead_of=second.id)
    assert [one.content for one in catalog.conversations.messages(made)] == ["q0", "a0", "new", "!"]
    assert len(catalog.conversations.messages(other)) == 6
