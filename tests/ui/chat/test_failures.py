"""What failed stands there to be sent again, where it belongs, and nothing else goes for it."""

from __future__ import annotations

import httpx2
from streamlit.testing.v1 import AppTest

from tests.app.breaking import breaking
from tests.ui.chat.talking import QUESTION, SECOND, ask, button, opened, questions, said, shown


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
