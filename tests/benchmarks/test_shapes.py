"""Uses beside questions: what is asked, of which texts, and what is right."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from app.models.loading import TorchModel
from benchmarks.caches import capture, memory_cache, prefill_prompt
from benchmarks.data import Dataset, Question, read_dataset
from benchmarks.quality import SHAPE_NAMES
from benchmarks.quality.material import Material, PromptDraft
from benchmarks.quality.measurement import run
from benchmarks.quality.prompts import PromptBuilder
from benchmarks.quality.shapes import CODES, SHAPES, sentences
from ragcache.errors import ConfigError
from tests.benchmarks.conftest import letters
from tests.benchmarks.test_prompts import builder, texts
from tests.benchmarks.test_quality import options

QUESTIONS = tuple(Question(f"line-{n}", f"What of {n}?", ("Nothing",), corpus="north") for n in range(60))
NORTH = {n: f"The {n} ships of the north sail in the month of May. No." for n in range(8)}
SOUTH = "All the camels of the south eat dry grass."
DATA = Dataset(QUESTIONS, "", {"north": "\n".join(NORTH.values()), "south": SOUTH})
MATERIAL = Material(
    NORTH, (tuple(NORTH),), tuple(PromptDraft(one, (n % 8, (n + 1) % 8)) for n, one in enumerate(QUESTIONS))
)


def shaped(name: str, seed: int = 0) -> Material:
    return SHAPES[name](MATERIAL, DATA, seed)


def test_every_shape_has_its_name_among_the_options() -> None:
    assert tuple(SHAPES) == SHAPE_NAMES


@pytest.mark.parametrize("name", SHAPES)
def test_the_seed_and_the_name_of_a_question_decide(name: str) -> None:
    assert shaped(name) == shaped(name)
    assert (shaped(name) == shaped(name, seed=1)) == (name in ("question", "summary"))
    alone = SHAPES[name](replace(MATERIAL, prompts=MATERIAL.prompts[7:8]), DATA, 0)
    assert alone.prompts[0].question == shaped(name).prompts[7].question, "whatever else is asked"
    assert [draft.question.name for draft in shaped(name).prompts] == [one.name for one in QUESTIONS]


def test_questions_are_as_they_are() -> None:
    assert shaped("question") == MATERIAL


def test_a_summary_has_no_right_answer() -> None:
    made = shaped("summary")
    assert made.texts == NORTH
    assert all("ummar" in draft.question.text and not draft.question.answers for draft in made.prompts)


def test_a_class_is_the_number_that_the_passage_of_the_sentence_bears() -> None:
    texts = {number: f"{text} The {number} boats of the north stay at home." for number, text in NORTH.items()}
    material = replace(
        MATERIAL, texts=texts, prompts=tuple(replace(one, passages=(7, 2, 5, 0)) for one in MATERIAL.prompts)
    )
    made = SHAPES["classes"](material, DATA, 0)
    assert all(text == f"Passage {number + 1}: {texts[number]}" for number, text in made.texts.items())
    for draft in made.prompts:
        assert draft.passages == (7, 2, 5, 0)
        told = re.findall(r"Sentence: (.*)\nPassage:(.*)", draft.question.text)
        number, label = draft.question.answers
        assert label == f"Passage {number}"
        assert [one for _, one in told][2:] == [""], "the last one is asked for"
        numbers = [int(one) - 1 for one in (*(one for _, one in told[:2]), number)]
        assert all(sentence in texts[one] for (sentence, _), one in zip(told, numbers, strict=True))
        assert len({7, 2, 5, 0} & set(numbers)) == 3, "no passage is given away"
    assert len({draft.question.answers for draft in made.prompts}) == 4
    assert len(shaped("classes").prompts[0].question.text.split("Sentence:")) == 3, "two passages: one is told"


def test_a_needle_stands_at_the_end_of_one_passage_of_its_prompt() -> None:
    made = shaped("needle")
    assert made.documents == MATERIAL.documents
    assert {number: made.texts[number] for number in NORTH} == NORTH, "as it was for the other prompts"
    places = set()
    for draft, before in zip(made.prompts, MATERIAL.prompts, strict=True):
        ((name,), (code,)) = re.findall("code of the (.*)\\?", draft.question.text), draft.question.answers
        assert int(code) in CODES
        (place,) = (place for place, number in enumerate(draft.passages) if number not in NORTH)
        planted = draft.passages[place]
        assert made.revised[planted] == before.passages[place]
        assert made.texts[planted] == f"{NORTH[before.passages[place]]} The code of the {name} is {code}."
        assert draft.passages[1 - place] == before.passages[1 - place]
        places.add(place)
    assert places == {0, 1}
    assert len(made.texts) == len(NORTH) + len(QUESTIONS)


def test_a_true_sentence_is_in_the_passages_and_a_false_one_is_not() -> None:
    made = shaped("truth")
    found = {"true": 0, "false": 0}
    for draft in made.prompts:
        (sentence,) = re.findall('"(.*)"', draft.question.text)
        (answer,) = draft.question.answers
        held = any(sentence in NORTH[number] for number in draft.passages)
        assert held == (answer == "true")
        assert held or sentence == SOUTH, "of the other corpus"
        found[answer] += 1
    assert min(found.values()) > 15


def test_a_false_sentence_comes_from_the_same_corpus_where_there_is_no_other() -> None:
    only = Dataset(QUESTIONS, "", {"north": "\n".join(NORTH.values())})
    for draft in SHAPES["truth"](MATERIAL, only, 0).prompts:
        (sentence,) = re.findall('"(.*)"', draft.question.text)
        held = any(sentence in NORTH[number] for number in draft.passages)
        assert (held, sentence in only.corpora["north"]) == (draft.question.answers == ("true",), True)
    all_of_it = replace(MATERIAL, prompts=tuple(replace(one, passages=tuple(NORTH)) for one in MATERIAL.prompts))
    with pytest.raises(ConfigError, match="no sentence is foreign"):
        SHAPES["truth"](all_of_it, only, 0)


def test_a_false_sentence_comes_from_another_question_where_questions_bring_passages() -> None:
    given = tuple(
        Question(f"line-{n}", "Which?", contexts=(f"The ship of number {n} sails in the month of May.",))
        for n in range(20)
    )
    data = Dataset(given, "")
    for question in given:
        (draft,) = SHAPES["truth"](Material.given(question, [question.contexts]), data, 0).prompts
        assert (question.contexts[0] in draft.question.text) == (draft.question.answers == ("true",))


def test_sentences_are_of_a_fair_length_and_on_one_line() -> None:
    assert sentences("No. The ships of the north\nsail in the month of May. Yes.") == [
        "The ships of the north sail in the month of May."
    ]
    assert sentences("Short. Text.") == ["Short. Text."]
    assert sentences("word " * 100) == [" ".join(["word"] * 40)]


def needles(parts: TorchModel, data: Dataset, *, room: int = 900, chunk_tokens: int = 40) -> PromptBuilder:
    def shape(material: Material) -> Material:
        return SHAPES["needle"](material, data, 0)

    return replace(builder(parts, room=room, chunk_tokens=chunk_tokens), shape=shape)


@pytest.mark.parametrize("context", ["alone", "document"])
def test_what_is_planted_is_captured_with_its_chunk(context: str, parts: TorchModel, corpora_folder: Path) -> None:
    """As if it had stood in the document when that was ingested."""
    data, system = read_dataset(corpora_folder), parts.template.system()
    for group in needles(parts, data).groups(data):
        (document,) = group.documents
        for prompt, (chunk, planted) in zip(group.prompts, group.revised, strict=True):
            (code,) = prompt.answers
            assert [code in text for text in texts(parts, prompt)] == [one == planted for one in prompt.chunks]
            assert set(prompt.chunks) - {planted} <= set(document)
            made = memory_cache(parts, context)
            deque(capture(made, system, group.documents, prompt.chunks, group.revised), maxlen=0)
            found = prefill_prompt(made, prompt.segments, "naive").report.chunks
            assert [one.tier for one in found] == ["ram"] * len(found)
            changed = [planted if one == chunk else one for one in document]
            *_, expected = capture(memory_cache(parts, context), system, [changed], [planted])
            same = made.store.get(expected.key)
            assert same is not None
            assert torch.equal(same.variant.k, expected.k)
            assert len(expected.key.context) == (min(3, document.index(chunk)) if context == "document" else 0)


def test_passages_are_dropped_for_what_a_shape_adds(parts: TorchModel, given_file: Path) -> None:
    data = read_dataset(given_file)
    (plain,) = next(builder(parts, chunk_tokens=40).groups(data)).prompts
    room = sum(len(segment) for segment in plain.segments)
    assert builder(parts, chunk_tokens=40, room=room).dropped(data.questions[0]) == 0
    tight = needles(parts, data, room=room)
    (prompt,) = next(tight.groups(data)).prompts
    assert tight.dropped(data.questions[0]) == 3 - len(prompt.chunks) > 0
    assert sum(len(segment) for segment in prompt.segments) <= room


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPE_NAMES)
@pytest.mark.parametrize("form", ["given_file", "corpora_folder", "pool"])
def test_rows_tell_their_shape(
    form: str, shape: str, parts: TorchModel, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    data = read_dataset(request.getfixturevalue("given_file" if form == "pool" else form))
    chosen = options("naive", contexts=("alone",), shape=shape, limit=2, pool="pieces" if form == "pool" else "none")
    (row,) = run(parts, letters, data, chosen, tmp_path / "out.json")
    assert row["shape"] == shape
    has_answer = shape in ("classes", "needle", "truth") or (shape == "question" and form != "corpora_folder")
    assert (row["f1"] is not None) == has_answer
