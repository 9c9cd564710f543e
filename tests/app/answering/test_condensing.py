from __future__ import annotations

from typing import NoReturn

import pytest

from app import RagPipeline
from app.answering.condensing import CONDENSE, INSTRUCTION, condensed
from app.answering.stream import CUT_OFF
from app.prompt import PromptTemplate, Turn
from app.settings import Settings
from ragcache.errors import PromptError
from ragcache.prefix import addresses

HISTORY: list[Turn] = [("One?", "1."), ("Who designed the lighthouse?", "Margaret Aldous."), ("When?", "In 1846.")]


def all_of(text: str) -> bool:
    return True


def no_model() -> NoReturn:
    raise AssertionError("no model is needed for this")


def test_join_puts_the_last_questions_in_front() -> None:
    assert condensed("join", HISTORY, "How tall is it?", no_model, all_of) == (
        "Who designed the lighthouse?\nWhen?\nHow tall is it?"
    )


def test_off_takes_the_question_alone() -> None:
    assert condensed("off", HISTORY, "How tall is it?", no_model, all_of) == "How tall is it?"


@pytest.mark.parametrize("name", CONDENSE)
def test_a_first_question_stays_as_it_is(name: str) -> None:
    assert condensed(name, [], "How tall is it?", no_model, all_of) == "How tall is it?"


def test_the_settings_know_the_same_names() -> None:
    for name in CONDENSE:
        assert Settings.model_validate({"condense": name}).condense == name


def test_a_conversation_within_a_border_is_condensed_within_it(sampled: Settings) -> None:
    """Nobody learns, by how soon his own prompt comes, what another one's conversation said."""
    border = "key-ann"
    history: list[Turn] = [("Who keeps the light at night? " * 20, "It is kept by Ann. " * 10)]
    with RagPipeline(sampled.model_copy(update={"condense": "model", "max_tokens": 2})) as pipeline:
        for _ in range(2):  # what comes again is kept
            pipeline.ask("When?", history=history, border=border, system="Be brief.", quotes=False)
        pipeline.settle()
        cache, template = pipeline.answering.cache, pipeline.answering.template
        store, name = cache.store, cache.engine.spec.fingerprint

        def kept(template: PromptTemplate) -> list[bool]:
            text = template.turns(history, INSTRUCTION.format(question="When?"), passages=False)
            blocks = list(addresses([template.system(), text], name))
            own = [one.key for one in blocks if one.span.end > len(template.system())]
            assert own, "the conversation is longer than a block"
            return [any(info.key == key for info in store.nearby(key.family)) for key in own]

        assert any(kept(template.within(border))), "within its own"
        assert not any(kept(template))


@pytest.mark.slow
def test_the_model_s_words_are_searched_for_beside_the_question(pipeline: RagPipeline) -> None:
    answering = pipeline.answering
    query = condensed("model", HISTORY, "How tall is it?", lambda: (answering.template, answering.cache), all_of)
    first, second = query.splitlines()
    assert first
    assert second == "How tall is it?"


def test_a_conversation_that_the_model_cannot_take_is_joined(pipeline: RagPipeline) -> None:
    answering = pipeline.answering
    history = [*HISTORY, ("Why? " * 3000, "So.")]
    query = condensed("model", history, "How tall is it?", lambda: (answering.template, answering.cache), all_of)
    assert query.splitlines()[0] == "When?"


LONG = "The harbour has a lighthouse, a bakery and many cats. " * 60


def test_earlier_questions_get_the_room_that_is_left_and_the_last_one_is_whole(pipeline: RagPipeline) -> None:
    fits = pipeline.models.embedder.whole_query
    history = [("One?", "1."), (f"{LONG}Who designed it?", "Margaret Aldous."), ("When?", "In 1846.")]
    query = condensed("join", history, "How tall is it?", no_model, fits)
    assert fits(query)
    assert query.endswith("Who designed it?\nWhen?\nHow tall is it?")
    left = query.removesuffix("Who designed it?\nWhen?\nHow tall is it?")
    assert left
    assert LONG.endswith(left)
    word = LONG.removesuffix(left).split()[-1]
    assert not fits(f"{word} {query}"), "no word of what was asked before is left out for nothing"


def test_a_question_that_fills_the_embedder_stands_alone(pipeline: RagPipeline) -> None:
    fits = pipeline.models.embedder.whole_query
    assert condensed("join", HISTORY, LONG, no_model, fits) == LONG


def test_a_long_question_before_does_not_hide_the_one_that_is_asked(pipeline: RagPipeline) -> None:
    history: list[Turn] = [(f"{LONG}Which bread does the bakery sell?", "Rye bread.")]
    asked = "How do meerkats keep watch for eagles?"
    sought = [pipeline.condensed(before, asked) for before in ((), history)]
    embed = pipeline.models.embedder.embed_query
    alone, behind = map(embed, sought)
    cut = embed(LONG)
    assert float(alone @ behind) > float(alone @ cut) + 0.1
    assert all(sought[1].endswith(words) for words in (asked, sought[0]))


def test_a_question_that_is_searched_for_in_parts_says_so(pipeline: RagPipeline) -> None:
    answer = pipeline.ask(f"{LONG} Who designed the lighthouse?", max_tokens=2)
    assert any("256 tokens at once" in note for note in answer.notes)
    assert any("256 tokens at once" in note for note in answer.report.incidents)
    assert pipeline.ask("Who designed the lighthouse?", max_tokens=2).notes == (CUT_OFF,)


def test_words_are_searched_for_whole(sampled: Settings) -> None:
    with RagPipeline(sampled.model_copy(update={"retrieval": "keyword"})) as pipeline:
        history: list[Turn] = [(LONG, "Yes.")]
        assert pipeline.condensed(history, "When?") == f"{LONG}\nWhen?"


def test_a_question_that_no_prompt_takes_is_refused_before_it_is_searched_for(
    pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    monkeypatch.setattr(pipeline._searching, "run", lambda collection, query, asked: searched.append(query))
    with pytest.raises(PromptError, match="the question is too long"):
        pipeline.ask("why " * 5000)
    assert searched == []
