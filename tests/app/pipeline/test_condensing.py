from __future__ import annotations

from typing import NoReturn

import pytest

from app import RagPipeline
from app.pipeline.condensing import CONDENSE, condensed
from app.prompt import Turn
from app.settings import Settings

HISTORY: list[Turn] = [("One?", "1."), ("Who designed the lighthouse?", "Margaret Aldous."), ("When?", "In 1846.")]


def no_model() -> NoReturn:
    raise AssertionError("no model is needed for this")


def test_join_puts_the_last_questions_in_front() -> None:
    assert condensed("join", HISTORY, "How tall is it?", no_model) == (
        "Who designed the lighthouse?\nWhen?\nHow tall is it?"
    )


def test_off_takes_the_question_alone() -> None:
    assert condensed("off", HISTORY, "How tall is it?", no_model) == "How tall is it?"


@pytest.mark.parametrize("name", CONDENSE)
def test_a_first_question_stays_as_it_is(name: str) -> None:
    assert condensed(name, [], "How tall is it?", no_model) == "How tall is it?"


def test_the_settings_know_the_same_names() -> None:
    for name in CONDENSE:
        assert Settings.model_validate({"condense": name}).condense == name


def test_the_model_s_words_are_searched_for_beside_the_question(pipeline: RagPipeline) -> None:
    answering = pipeline.answering
    query = condensed("model", HISTORY, "How tall is it?", lambda: (answering.template, answering.cache))
    first, second = query.splitlines()
    assert first
    assert second == "How tall is it?"


def test_a_conversation_that_the_model_cannot_take_is_joined(pipeline: RagPipeline) -> None:
    answering = pipeline.answering
    history = [*HISTORY, ("Why? " * 3000, "So.")]
    query = condensed("model", history, "How tall is it?", lambda: (answering.template, answering.cache))
    assert query.splitlines()[0] == "When?"
