"""The chat over a real server: asked, answered, edited and compared; nothing that was typed is lost."""

from __future__ import annotations

from concurrent.futures import Future

import httpx2
import pytest
from streamlit.testing.v1 import AppTest

from app.answering.stream import CUT_OFF
from tests.app.server.event_streams import asked
from tests.ui.chat.talking import (
    PATIENCE_S,
    QUESTION,
    READER,
    SECOND,
    act,
    ask,
    button,
    enter,
    opened,
    questions,
    said,
    script,
    shown,
)
from ui.chat import history, talk, turn
from ui.chat.history import SHOWN
from ui.markup import escape
from ui.settings import CHOSEN

HOSTILE = "<img src=x onerror=alert(1)> ![x](http://evil.example) **b** https://evil.example $a$"


def test_a_question_begins_a_conversation_and_follow_ups_go_on_with_it(page: AppTest, client: httpx2.Client) -> None:
    html = shown(page.run())
    assert "What do you want to know from “docs”?" in html and 'data-rc="chat-ask"' in html
    html = shown(page.chat_input[0].set_value(f" {QUESTION} ").run())
    name = page.query_params["c"]
    assert questions(html) == [QUESTION] and "rc-answer" in html and "rc-waiting" not in html
    assert f'aria-current="page" title="{QUESTION}"' in html
    html = shown(page.chat_input[0].set_value(SECOND).run())
    assert questions(html) == [QUESTION, SECOND]
    assert [one["content"] for one in said(client, name)][::2] == [QUESTION, SECOND]
    assert questions(button(page, "New chat")) == [] and page.query_params["collection"] == "docs"


def test_a_suggestion_is_asked(page: AppTest) -> None:
    page.run()
    assert questions(act(page, "chat-ask", SECOND)) == [SECOND]


def test_what_a_reader_should_know_of_an_answer_stands_below_it(page: AppTest, talked: str) -> None:
    assert f"<p>{escape(CUT_OFF)}</p>" in opened(page, talked)
    assert 'class="rc-notes"' not in history.answer({"content": "It was.", "role": "assistant"}, 1)


def test_texts_do_nothing_but_stand_there(page: AppTest, client: httpx2.Client, talked: str) -> None:
    ask(client, talked, HOSTILE)
    client.patch(f"/v1/conversations/{talked}", json={"title": HOSTILE})
    html = opened(page, talked)
    assert html.count("&lt;img src=x") >= 4 and "<img" not in html and "<a " not in html
    assert not page.markdown


def test_the_last_question_is_edited_and_asked_again(page: AppTest, client: httpx2.Client, talked: str) -> None:
    ask(client, talked, SECOND)
    before = said(client, talked)
    opened(page, talked)
    assert questions(button(page, "Again")) == [QUESTION, SECOND]
    again = said(client, talked)
    assert [one["content"] for one in again[::2]] == [QUESTION, SECOND] and again[2]["id"] > before[3]["id"]
    button(page, "Edit")
    page.text_area[0].set_value("Who kept the light?")
    assert questions(button(page, "Ask")) == [QUESTION, "Who kept the light?"]
    assert len(said(client, talked)) == 4 and not page.text_area
    button(page, "Edit")
    button(page, "Leave it")
    assert not page.text_area and len(said(client, talked)) == 4


def test_an_answer_without_cache_stands_beside_and_after_a_reload(
    page: AppTest, client: httpx2.Client, talked: str
) -> None:
    assert "rc-compare" not in opened(page, talked)
    html = button(page, "Answer without cache")
    assert html.count("to the first word") == 2
    assert "with the cache." in html or "equally soon." in html, "whichever of such short ones was sooner"
    assert len(said(client, talked)) == 2
    fresh = AppTest.from_function(script, default_timeout=PATIENCE_S)
    assert opened(fresh, talked).count("to the first word") == 2
    fresh.chat_input[0].set_value(SECOND)
    assert "rc-compare" not in shown(fresh.run())


def test_whoever_comes_in_mid_answer_sees_all_of_it_and_is_asked_next(
    page: AppTest, client: httpx2.Client, talked: str
) -> None:
    body = {"question": SECOND, "max_tokens": 150, "temperature": 2.0, "seed": 1}
    with asked(client, "POST", f"/v1/conversations/{talked}/messages", json=body) as events:
        next(events)
    page.session_state[turn.TYPED] = {talked: "And then?"}
    assert questions(opened(page, talked)) == [QUESTION, SECOND, "And then?"]
    contents = [one["content"] for one in said(client, talked)]
    assert contents[::2] == [QUESTION, SECOND, "And then?"]
    assert page.session_state[turn.TYPED] == {}


def test_what_is_refused_stands_there_to_be_sent_again(page: AppTest, client: httpx2.Client, talked: str) -> None:
    page.session_state[CHOSEN] = {"linker": "nope"}
    opened(page, talked)
    html = shown(page.chat_input[0].set_value(SECOND).run())
    assert questions(html) == [QUESTION, SECOND] and "nope" in html and "rc-refusal" in html
    page.session_state[CHOSEN] = {}
    html = button(page, "Send it again")
    assert questions(html) == [QUESTION, SECOND] and "rc-refusal" not in html
    assert len(said(client, talked)) == 4


def test_a_question_that_a_server_lost_stands_there(page: AppTest, talked: str) -> None:
    page.session_state[turn.ASKED] = {talked: turn.SentQuestion(talked, "Was it lost?", None, False, Future())}
    html = opened(page, talked)
    assert questions(html) == [QUESTION, "Was it lost?"] and turn.LOST in html
    assert questions(button(page, "Dismiss")) == [QUESTION]


def test_a_source_opens_beside_and_closes(page: AppTest, talked: str) -> None:
    opened(page, talked)
    html = act(page, "cite", "1:0")
    assert "rc-panel" in html and page.query_params[talk.SOURCE] == "1:0"
    assert "rc-panel" not in act(page, "close")
    for odd in ("1:99", "0:0", "7:0", "x", "1:²"):
        assert "rc-panel" not in act(page, "cite", odd)


def test_a_long_conversation_shows_its_end_first(page: AppTest, client: httpx2.Client, talked: str) -> None:
    for number in range(SHOWN):
        ask(client, talked, f"Question {number}?")
    html = opened(page, talked)
    assert "Show 40 earlier" in html and questions(html)[0] == "Question 19?"
    html = act(page, "cite", "1:0")
    assert "rc-panel" in html and "Show 40 earlier" in html and questions(html)[0] == "Question 19?"
    act(page, "close")
    assert f'data-rc-value="{2 * SHOWN + 1}:0"' in html
    html = act(page, "chat-earlier")
    assert questions(html)[:2] == [QUESTION, "Question 0?"] and len(questions(html)) == SHOWN + 1


def test_conversations_are_looked_for_renamed_and_deleted(page: AppTest, client: httpx2.Client, talked: str) -> None:
    opened(page, talked)
    page.text_input(key="chat-words").set_value("nowhere said")
    assert "Nothing has these words." in shown(page.run())
    page.text_input(key="chat-words").set_value("designed the")
    assert talked in shown(page.run())
    (title,) = [one for one in page.text_input if one.label == "Title"]
    title.set_value("Keepers")
    assert '<h1 class="rc-title" dir="auto">Keepers</h1>' in button(page, "Rename")
    button(page, "Delete this conversation")
    assert client.get(f"/v1/conversations/{talked}").status_code == 404 and "c" not in page.query_params


def test_others_see_nothing_of_it(
    page: AppTest, client: httpx2.Client, talked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(client.headers[READER], monkeypatch)
    html = opened(page, talked)
    assert "This conversation is not there" in html and QUESTION not in html
    html = button(page, "Start a new chat")
    assert "“other”" in html and "No conversations yet." in html and page.selectbox[0].options == ["other"]
    html = shown(page.chat_input[0].set_value("What flour is used?").run())
    assert "bakery.md" in html and "lighthouse" not in html.casefold()


def test_with_nothing_to_ask_it_says_what_to_do(
    page: AppTest, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.client.library.listed_collections", lambda connection: [])
    assert "There is nothing to ask yet" in shown(page.run()) and not page.chat_input


def test_an_answer_that_said_nothing_leaves_its_question(page: AppTest, talked: str) -> None:
    def ended() -> None:
        import streamlit as st

        from app.client.conversations import FollowedAnswer
        from ui.chat import turn

        turn.settle(st.query_params["c"], FollowedAnswer(question="What then?", ended=True), None)

    stopped = AppTest.from_function(ended)
    stopped.query_params["c"] = talked
    stopped.run()
    for name in (turn.FAILED, turn.SETTLED):
        page.session_state[name] = stopped.session_state[name]
    html = opened(page, talked)
    assert questions(html) == [QUESTION, "What then?"] and turn.STOPPED in html


def test_beside_a_question_that_was_lost_no_answer_is_told_of() -> None:
    """One has come before, which no run has told of yet."""

    def ended() -> None:
        import streamlit as st

        from app.client.conversations import FollowedAnswer
        from ui.chat import turn

        st.session_state[turn.COME] = "a"
        st.session_state[turn.ASKED] = {"a": turn.SentQuestion("a", "And then?", None, False)}
        turn.settle("a", FollowedAnswer(question="What then?", ended=True), None)

    run = AppTest.from_function(ended).run()
    assert not run.exception and run.session_state[turn.COME] is None
    assert "a" in run.session_state[turn.FAILED]


def test_a_question_to_a_collection_that_has_gone_is_asked_of_no_other(page: AppTest, client: httpx2.Client) -> None:
    client.post("/v1/collections", json={"name": "papers"})
    page.query_params["collection"] = "papers"
    shown(page.run())
    client.delete("/v1/collections/papers")
    before = client.get("/v1/conversations").json()["data"]
    html = shown(page.chat_input[0].set_value(QUESTION).run())
    assert questions(html) == [QUESTION] and "“papers” is not there any more" in html
    assert client.get("/v1/conversations").json()["data"] == before
