from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answering.answerer import fit
from app.prompt import PromptTemplate, Turn
from ragcache.errors import PromptError

QUESTION = "Who designed the lighthouse?"
TURN: Turn = ("When was it first lit?", "On 1 September 1846.")


def fixed(template: PromptTemplate) -> int:
    return len(template.system()) + len(template.turns((), QUESTION, passages=False))


def test_what_fits_is_kept(template: PromptTemplate) -> None:
    context = fixed(template) + 300 + len(template.turn(TURN)) + 50
    fitted = fit(template, QUESTION, [100, 100, 100], [TURN], context, 50)
    assert (fitted.chunks, fitted.turns, fitted.notes) == (3, 1, ())
    assert fit(template, QUESTION, [100, 100, 100], [TURN], context - 1, 50).chunks == 2


def test_the_lowest_ranked_chunks_go_first(template: PromptTemplate) -> None:
    context = fixed(template) + 250 + 20
    fitted = fit(template, QUESTION, [100, 100, 100, 10], [], context, 20)
    assert fitted.chunks == 2
    (note,) = fitted.notes
    assert note == (
        f"the lowest-ranked 2 of 4 chunks left out: the prompt and the answer would not fit the model's context of "
        f"{context} tokens"
    )


def test_a_long_conversation_does_not_push_all_chunks_out(template: PromptTemplate) -> None:
    each = len(template.turn(TURN))
    context = fixed(template) + 400
    fitted = fit(template, QUESTION, [60, 60, 60], [TURN] * 100, context, 1)
    assert fitted.chunks == 3
    assert 1 <= fitted.turns <= 400 // each
    assert fitted.notes == (
        f"the oldest {100 - fitted.turns} of 100 turns left out: the prompt and the answer would not fit the model's "
        f"context of {context} tokens",
    )


def test_a_chunk_that_fits_in_no_way_is_left_out(template: PromptTemplate) -> None:
    assert fit(template, QUESTION, [500], [], fixed(template) + 100, 1).chunks == 0


def test_a_question_that_is_too_long_alone_is_refused(template: PromptTemplate) -> None:
    with pytest.raises(PromptError, match=r"the question is too long: .* takes \d+ tokens .* up to 64, .* has 256"):
        fit(template, "Who? " * 200, [10], [], 256, 64)


@given(
    chunks=st.lists(st.integers(1, 400), max_size=12),
    turns=st.integers(0, 30),
    room=st.integers(0, 1500),
    answer=st.integers(1, 300),
)
def test_the_prompt_always_fits(
    template: PromptTemplate, chunks: list[int], turns: int, room: int, answer: int
) -> None:
    context = fixed(template) + room + answer
    history = [TURN] * turns
    fitted = fit(template, QUESTION, chunks, history, context, answer)
    text = template.turns(history[len(history) - fitted.turns :], QUESTION, passages=bool(fitted.chunks))
    assert len(template.system()) + sum(chunks[: fitted.chunks]) + len(text) + answer <= context
    assert bool(fitted.notes) == (fitted.chunks < len(chunks) or fitted.turns < turns)
