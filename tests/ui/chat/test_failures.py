"""What failed stands there to be sent again, where it belongs, and nothing else goes for it."""

from __future__ import annotations

from concurrent.futures import Future

import httpx2
from streamlit.testing.v1 import AppTest

from tests.app.breaking import breaking
from tests.ui.chat.talking import PATIENCE_S, QUESTION, SECOND, ask, button, opened, questions, said, shown
from tests.waiting import wait_until
from ui.chat import turn
from ui.settings import CHOSEN


def asked(client: httpx2.Client, name: str) -> list[str]:
    return [str(one["content"]) for one in said(client, name)[::2]]


def test_a_question_whose_answer_broke_off_is_sent_again_in_its_place(
    page: AppTest, client: httpx2.Client, talked: str
) -> None:
    opened(page, talked)
    with breaking(4):
        html = shown(page.chat_input[0].set_value(SECOND).run())
    assert questions(html) == [QUESTION, SECOND] and "rc-refusal" in html
    assert questions(button(page, "Send it again")) == [QUESTION, SECOND] == asked(client, talked)


def test_an_answer_that_breaks_off_leaves_the_one_that_was_there(
    page: AppTest, client: httpx2.Client, talked: str
) -> None:
    before = said(client, talked)
    opened(page, talked)
    with breaking(4):
        html = button(page, "Again")
    assert questions(html) == [QUESTION] and "rc-refusal" in html and said(client, talked) == before
    html = button(page, "Send it again")
    assert questions(html) == [QUESTION] and "rc-refusal" not in html
    assert asked(client, talked) == [QUESTION] and said(client, talked) != before


def test_a_tab_that_is_behind_deletes_and_compares_nothing(page: AppTest, client: httpx2.Client, talked: str) -> None:
    opened(page, talked)
    for name, sent_again in (("Again", "Send it again"), ("Answer without cache", "Try again")):
        ask(client, talked, SECOND)
        before = said(client, talked)
        html = button(page, name)
        assert "gone on elsewhere" in html and said(client, talked) == before
        assert [one.label for one in page.button if one.label == sent_again] == [sent_again]
        button(page, "Dismiss")
    assert asked(client, talked) == [QUESTION, SECOND, SECOND]


def test_each_conversation_keeps_what_was_typed_asked_and_refused_in_it(
    page: AppTest, client: httpx2.Client, talked: str
) -> None:
    other = str(client.post("/v1/conversations", json={"collection": "docs"}).json()["id"])
    page.session_state[turn.ASKED] = {talked: turn.SentQuestion(talked, "Was it lost?", None, False, Future())}
    page.session_state[CHOSEN] = {"linker": "nope"}
    opened(page, other)
    html = shown(page.chat_input[0].set_value("Is it refused?").run())
    assert questions(html) == ["Is it refused?"] and "nope" in html
    page.session_state[CHOSEN] = {}
    html = opened(page, talked)
    assert questions(html) == [QUESTION, "Was it lost?"] and turn.LOST in html
    page.session_state[turn.TYPED] = {other: "And what then?"}
    assert questions(button(page, "Send it again")) == [QUESTION, "Was it lost?"]
    assert asked(client, talked) == [QUESTION, "Was it lost?"]
    assert questions(opened(page, other)) == ["And what then?"], "which was typed there"
    client.delete(f"/v1/conversations/{other}")


def test_a_double_click_asks_once(page: AppTest, client: httpx2.Client, talked: str) -> None:
    def twice() -> None:
        import streamlit as st

        from ui import access
        from ui.chat import turn

        name, connection = st.query_params["c"], access.connection()
        for number in range(2):
            if st.query_params["compares"]:
                turn.compare(connection, name, "Who?", None)
            else:
                turn.send(connection, name, "Who?")
            sent = turn.sending(name)
            assert (sent is not None) == (number == 0)
            if sent is not None:
                assert turn.taken(sent)
        st.session_state["failure"] = turn.failed(name)

    for compares in ("", "yes"):
        clicked = AppTest.from_function(twice, default_timeout=PATIENCE_S)
        clicked.query_params["c"], clicked.query_params["compares"] = talked, compares
        clicked.run()
        assert not clicked.exception, clicked.exception
        assert clicked.session_state["failure"] is None
        wait_until(lambda: not client.get(f"/v1/conversations/{talked}").json()["answering"], PATIENCE_S)
    assert asked(client, talked) == [QUESTION, "Who?"]


def test_what_was_refused_goes_when_its_answer_has_come(page: AppTest, client: httpx2.Client, talked: str) -> None:
    """As where two tabs ask the same; what else was refused stays."""
    for question, stays in (("Which?", True), (QUESTION, False)):
        refused = turn.FailedQuestion(talked, question, None, False, "an answer is being made here")
        page.session_state[turn.FAILED] = {talked: refused}
        page.session_state[turn.SETTLED] = ""
        html = opened(page, talked)
        assert questions(html) == [QUESTION, *([question] if stays else [])]
        assert ("rc-refusal" in html) is stays
