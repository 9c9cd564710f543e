"""Uses beside questions: what is asked, of which texts, and what is right."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.models.loading import TorchModel
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
    assert alone.prompts[0] == shaped(name).prompts[7], "whatever else is asked"
    for before, after in zip(MATERIAL.prompts, shaped(name).prompts, strict=True):
        assert (after.question.name, after.passages) == (before.question.name, before.passages)


def test_questions_are_as_they_are() -> None:
    assert shaped("question") == MATERIAL


def test_a_summary_has_no_right_answer() -> None:
    made = shaped("summary")
    assert made.texts == NORTH
    assert all("ummar" in draft.question.text and not draft.question.answers for draft in made.prompts)


def test_a_class_is_the_number_that_the_passage_of_the_sentence_bears() -> None:
    made = shaped("classes")
    assert all(text == f"Passage {number + 1}: {NORTH[number]}" for number, text in made.texts.items())
    for draft in made.prompts:
        (sentence,) = re.findall('"(.*)"', draft.question.text)
        label, number = draft.question.answers
        assert label == f"Passage {number}"
        assert sentence in NORTH[int(number) - 1]
        assert int(number) - 1 in draft.passages
    assert len({draft.passages.index(int(draft.question.answers[1]) - 1) for draft in made.prompts}) == 2


def test_a_needle_stands_at_the_end_of_one_passage_of_its_prompt() -> None:
    made = shaped("needle")
    names = []
    for draft in made.prompts:
        ((name,), (code,)) = re.findall("code of the (.*)\\?", draft.question.text), draft.question.answers
        needle = f"The code of the {name} is {code}."
        assert [number for number, text in made.texts.items() if needle in text] == [
            number for number in draft.passages if needle in made.texts[number]
        ]
        assert sum(needle in text for text in made.texts.values()) == 1
        assert int(code) in CODES
        names.append(name)
    assert len(set(names)) == len(names), "so that no other prompt's needle in a shared passage answers it"
    for number, text in made.texts.items():
        assert re.fullmatch(re.escape(NORTH[number]) + r"( The code of the \w+ \w+ is \d{5}\.)*", text)


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


def test_what_is_planted_is_captured_with_its_chunk(parts: TorchModel, corpora_folder: Path) -> None:
    data = read_dataset(corpora_folder)
    for group in needles(parts, data).groups(data):
        (document,) = group.documents
        for prompt in group.prompts:
            (code,) = prompt.answers
            assert sum(code in text for text in texts(parts, prompt)) == 1
            assert set(prompt.chunks) <= set(document)


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
