from __future__ import annotations

import os
from datetime import timedelta

import pytest

from app.errors import CatalogError
from app.library.catalog import Catalog
from app.library.catalog.records import Collection, NewMessage
from app.library.catalog.tables import now
from tests.app.library.catalog.samples import make_collection


def test_a_conversation_keeps_its_messages_in_order(catalog: Catalog, collection: Collection) -> None:
    conversation = catalog.conversations.create(collection, "Fähren")
    assert catalog.conversations.get(conversation.id) == conversation
    assert catalog.conversations.messages(conversation.id) == []
    question = NewMessage("user", "Wann?\0")
    said = {"start": 0, "end": 5, "citation": 0, "share": 0.9}
    answer = NewMessage("assistant", "Um 7.", ({"file": "a.pdf", "page": 3},), {"ttft_ms": 12.5}, (said,), ("cut off",))
    written = catalog.conversations.add(conversation.id, [question, answer])
    written += catalog.conversations.add(conversation.id, [NewMessage("user", "Und zurück?")])
    found = catalog.conversations.messages(conversation.id)
    assert found == written
    assert [message.content for message in found] == ["Wann?\0", "Um 7.", "Und zurück?"]
    assert (found[1].role, found[1].citations, found[1].report) == ("assistant", answer.citations, answer.report)
    assert (found[0].citations, found[0].report, found[0].support) == ((), None, None)
    assert (found[1].support, found[1].notes, found[0].notes) == ((said,), ("cut off",), ())


@pytest.mark.parametrize("most", [1, 2, 3, 4, 9])
def test_what_was_said_last_is_the_end_of_what_was_said(catalog: Catalog, collection: Collection, most: int) -> None:
    conversation, other = (catalog.conversations.create(collection) for _ in range(2))
    assert catalog.conversations.last_said(conversation.id, most) == []
    cited = [({"document_id": number},) for number in range(3)]
    for number in range(3):
        answer = NewMessage("assistant", f"{number}.", cited[number], {"ttft_s": 1.0})
        catalog.conversations.add(conversation.id, [NewMessage("user", f"{number}?"), answer])
    catalog.conversations.add(other.id, [NewMessage("assistant", "elsewhere", ({"document_id": 9},))])
    words = [NewMessage(one.role, one.content) for one in catalog.conversations.messages(conversation.id)]
    for number in (1, 2):  # the last question stands behind the one, the next behind the other
        words[2 * number + 1] = NewMessage("assistant", f"{number}.", cited[number])
    assert catalog.conversations.last_said(conversation.id, most) == words[-most:]
    assert catalog.conversations.count_messages(conversation.id) == 6
    with pytest.raises(CatalogError):
        catalog.conversations.last_said("nope", most)


def test_the_conversation_last_used_comes_first(catalog: Catalog, collection: Collection) -> None:
    first, second = catalog.conversations.create(collection, "1"), catalog.conversations.create(collection, "2")
    elsewhere = catalog.conversations.create(make_collection(catalog, "other"))
    catalog.conversations.add(first.id, [NewMessage("user", "?")])
    assert [one.id for one in catalog.conversations.all(collection)] == [first.id, second.id]
    assert {one.id for one in catalog.conversations.all()} == {first.id, second.id, elsewhere.id}
    assert catalog.conversations.get(first.id).updated > first.updated


def test_pages_of_conversations_are_those_of_the_whole_list(
    catalog: Catalog, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = now()
    monkeypatch.setattr("app.library.catalog.conversations.now", lambda: moment)
    conversations, other = catalog.conversations, make_collection(catalog, "other")
    for number in range(9):
        moment += timedelta(microseconds=number % 3 == 0)  # some have the same
        conversations.create(other if number % 4 == 1 else collection, str(number), "anna")
        conversations.create(collection, "", "bob")
    listed = conversations.all(owner="anna")
    assert [int(one.title) // 3 for one in listed] == [2] * 3 + [1] * 3 + [0] * 3
    for seen in ([collection.id], [collection.id, other.id], None):
        own = [one for one in listed if seen is None or one.collection_id in seen]
        for limit in (1, 4, 9):
            assert conversations.page("anna", limit, collections=seen) == own[:limit]
            for place, one in enumerate(own, start=1):
                assert conversations.page("anna", limit, after=one.id, collections=seen) == own[place : place + limit]
    for hidden in (listed[0].id, "nope", "\0"):
        with pytest.raises(CatalogError, match="no conversation"):
            conversations.page("anna" if hidden != listed[0].id else "bob", 2, after=hidden)
    with pytest.raises(CatalogError, match="no conversation"):
        conversations.page(
            "anna",
            2,
            after=next(one.id for one in listed if one.collection_id == other.id),
            collections=[collection.id],
        )
    assert conversations.page("anna", 2, collections=[]) == []


@pytest.mark.parametrize(
    ("words", "found"),
    [("LIGHT", True), ("100 %", True), ("größe", True), ("Größe", True), ("灯塔", True), ("l_ght", False), ("%", True),
     ("\\", False), ("nowhere", False)],
)  # fmt: skip
def test_words_are_looked_for_as_they_stand(catalog: Catalog, collection: Collection, words: str, found: bool) -> None:
    made = catalog.conversations.create(collection, "Die Größe", "anna")
    catalog.conversations.add(made.id, [NewMessage("user", "The Light, 100 % of 灯塔")])
    assert [one.id for one in catalog.conversations.page("anna", 5, words=words)] == [made.id] * found
    assert catalog.conversations.page("bob", 5, words=words) == []


def test_rename_and_delete(catalog: Catalog, collection: Collection) -> None:
    conversation = catalog.conversations.create(collection)
    catalog.conversations.rename(conversation.id, "new")
    assert catalog.conversations.get(conversation.id).title == "new"
    catalog.conversations.add(conversation.id, [NewMessage("user", "?")])
    catalog.conversations.delete(conversation.id)
    assert catalog.conversations.all() == []


def test_the_first_title_stays(catalog: Catalog, collection: Collection) -> None:
    """Also one that its user gives while the first answer is made."""
    for mine, kept in (("", "Who?"), ("Mine", "Mine")):
        made = catalog.conversations.create(collection, mine)
        for title in ("Who?", "When?"):
            catalog.conversations.add(made.id, [NewMessage("user", title), NewMessage("assistant", "It.")], title=title)
        assert catalog.conversations.get(made.id).title == kept


def test_a_conversation_that_is_not_there(catalog: Catalog) -> None:
    conversations = catalog.conversations
    for act in (
        lambda: conversations.get("x"),
        lambda: conversations.messages("x"),
        lambda: conversations.delete("x"),
        lambda: conversations.rename("x", "y"),
        lambda: conversations.add("x", [NewMessage("user", "?")]),
    ):
        with pytest.raises(CatalogError, match="no conversation 'x'"):
            act()


def test_a_conversation_of_another_is_not_there(catalog: Catalog, collection: Collection) -> None:
    conversations = catalog.conversations
    own, nobodys = conversations.create(collection, "1", "anna"), conversations.create(collection, "2")
    assert (own.owner, nobodys.owner) == ("anna", "")
    conversations.add(own.id, [NewMessage("user", "?")], "anna")
    for foreign in ("bob", ""):
        for act in (
            lambda owner: conversations.get(own.id, owner),
            lambda owner: conversations.messages(own.id, owner),
            lambda owner: conversations.delete(own.id, owner),
            lambda owner: conversations.rename(own.id, "y", owner),
            lambda owner: conversations.add(own.id, [NewMessage("user", "!")], owner),
        ):
            with pytest.raises(CatalogError, match=f"no conversation '{own.id}'"):
                act(foreign)
    assert conversations.get(own.id, "anna") == conversations.get(own.id)
    assert [one.id for one in conversations.all(owner="anna")] == [own.id]
    assert [one.id for one in conversations.all(collection, "")] == [nobodys.id]
    assert len(conversations.all()) == 2
    assert [one.content for one in conversations.messages(own.id, "anna")] == ["?"]
    conversations.rename(own.id, "new", "anna")
    conversations.delete(own.id, "anna")
    assert conversations.all() == [nobodys]


@pytest.mark.parametrize("name", ["\udcff", "\0", "x" * 5000])
def test_a_name_that_no_database_takes_is_not_there(catalog: Catalog, name: str) -> None:
    with pytest.raises(CatalogError, match="no conversation"):
        catalog.conversations.get(name)
    with pytest.raises(CatalogError, match="no collection"):
        catalog.collections.get(name)
    assert catalog.collections.find(name) is None


def test_runs_of_killed_processes_are_marked(catalog: Catalog, collection: Collection) -> None:
    elsewhere = catalog.runs.start(make_collection(catalog, "other"))
    killed = catalog.runs.start(collection)
    done = catalog.runs.start(collection)
    catalog.runs.finish(done, "done", {"added": 3})
    newest, oldest = catalog.runs.newest(collection)
    assert (newest.id, newest.state, newest.counts, newest.pid) == (done, "done", {"added": 3}, os.getpid())
    assert newest.finished is not None
    assert newest.finished >= newest.started
    assert (oldest.id, oldest.state, oldest.finished) == (killed, "interrupted", None)
    assert catalog.runs.newest(catalog.collections.get("other"))[0].id == elsewhere
    assert catalog.runs.newest(catalog.collections.get("other"))[0].state == "running"
    assert catalog.runs.newest(collection, limit=1) == [newest]
