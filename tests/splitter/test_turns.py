from __future__ import annotations

import json

import pytest

from splitter import make_splitter
from splitter.base import ChunkLimits
from splitter.turns import chat_regions, text_regions
from splitter.units import Border
from tests.splitter.words import Words

TALK = [("user", "Hi?\n\nAre you there?"), ("assistant", "Yes."), ("user", "Good."), ("assistant", "Bye.")]
MESSAGES = [{"role": role, "content": words} for role, words in TALK]


def turns(text: str, sure: bool = False) -> list[tuple[str, str]]:
    """Nothing where there are none; else all that there is."""
    regions = chat_regions(text) if sure else text_regions(text)
    found = [(text[region.start : region.end].strip(), region.border.name) for region in regions]
    return found if any(region.form == "turn" for region in regions) else []


@pytest.mark.parametrize(
    "text", [json.dumps(MESSAGES), str(MESSAGES), str([dict(reversed(m.items())) for m in MESSAGES])]
)
def test_messages_as_programs_write_them(text: str) -> None:
    found = turns(text)
    assert [border for _, border in found] == ["SECTION", "SENTENCE", "PARAGRAPH", "SENTENCE"]
    assert [next(word for word in ("Hi?", "Yes.", "Good.", "Bye.") if word in turn) for turn, _ in found]
    assert "".join(turn for turn, _ in found).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("form", ["{}: {}\n", "**{}:** {}\n\n", "[10:30] {}: {}\n", "### {}: {}\n", "<|{}|> {}\n"])
def test_transcripts(form: str) -> None:
    text = "A talk.\n\n" + "".join(form.format(role.title(), words) for role, words in TALK)
    found = turns(text)
    assert found[0] == ("A talk.", "PARAGRAPH")
    assert [border for _, border in found[1:]] == ["PARAGRAPH", "SENTENCE"] * 2
    assert "Are you there?" in found[1][0]


def test_names_count_only_where_it_is_known_to_be_a_conversation() -> None:
    text = "Anna: Hello.\nNote: this.\nBob: Hello!\nAnna: Bye.\nBob: Bye!\n"
    assert turns(text) == []
    assert [turn for turn, _ in turns(text, sure=True)] == [
        "Anna: Hello.\nNote: this.",
        "Bob: Hello!",
        "Anna: Bye.",
        "Bob: Bye!",
    ]


@pytest.mark.parametrize(
    "text", ["", "Plain text: nothing else.", "Question: what?\nAnswer: that.", "User: alone " * 9]
)
def test_other_texts_are_no_conversations(text: str) -> None:
    assert turns(text) == []


def test_a_message_that_was_cut_off_ends_the_last_turn() -> None:
    text = str([{"content": words, "role": role} for role, words in TALK])[:-12]
    assert [border for _, border in turns(text)] == ["SECTION", "SENTENCE", "PARAGRAPH", "SENTENCE"]
    assert Border.SECTION > Border.SENTENCE


def regions(text: str) -> list[tuple[str, str]]:
    return [(region.form, text[region.start : region.end].strip()) for region in text_regions(text)]


QUESTIONS = "Q: How {0}?\n\nA: By {0}. It is simple."
SECTIONS = ("Billing", "Shipping", "Returns")


@pytest.mark.parametrize("heading", ["## {}\n\n", "{}\n-------\n\n", "## {}\n\nThis is about {}.\n\n", "== {} ==\n"])
@pytest.mark.parametrize("roles", [("Q", "A"), ("Question", "Answer"), ("**Customer", "**Support")])
def test_questions_below_headings_stay_below_them(heading: str, roles: tuple[str, str]) -> None:
    asks, answers = (role + ":" + "**" * role.startswith("*") for role in roles)
    exchange = QUESTIONS.replace("Q:", asks).replace("A:", answers)
    text = "# Help\n\nWe answer.\n\n" + "".join(
        f"{heading.format(name, name)}{exchange.format(name)}\n\n" for name in SECTIONS
    )
    found = regions(text)
    assert [form for form, _ in found if form in ("heading", "turn")] == ["heading", *["heading", "turn", "turn"] * 3]
    turns = [part for form, part in found if form == "turn"]
    assert turns == [part for name in SECTIONS for part in exchange.format(name).split("\n\n")]
    pieces = make_splitter("auto", Words(), None, ChunkLimits(5, 40)).split(text, "markdown")
    assert len(pieces) > 1
    assert all(piece.heading[0] == "Help" for piece in pieces)
    assert {text[piece.start :].split("\n")[0].strip("#= ") for piece in pieces} <= {"Help", *SECTIONS}


def test_examples_of_messages_in_a_guide_are_code() -> None:
    example = '```json\n{"role": "%s", "content": "Hi."}\n```'
    text = f"# Chat\n\nSend one:\n\n{example % 'user'}\n\n## Answers\n\n{example % 'assistant'}\n\nThat is all."
    assert [form for form, _ in regions(text)] == ["heading", "prose", "whole", "heading", "whole", "prose"]
    inline = "# Chat\n\nSend `{'role': 'user'}` and more.\n\nOr `[{'role': 'system'}]`, which is\n\n## Rare\n\nEnd."
    assert [form for form, _ in regions(inline)] == ["heading", "prose", "heading", "prose"]


def test_a_conversation_in_a_guide_ends_with_its_section() -> None:
    text = f"# Guide\n\nIt helps.\n\n## Example\n\nSo:\n\n{LINES}\n## Notes\n\nMore.\n\n## Ends\n\nEnd."
    assert [form for form, _ in regions(text)] == [
        *("heading", "prose", "heading", "prose"), *["turn"] * 4, *("heading", "prose") * 2
    ]  # fmt: skip


LINES = "User: Hi?\nAssistant: Yes.\nUser: Good.\nAssistant: Bye.\n"
CODE = "```py\n# no heading\nUser: x\n```"
ANSWER = f"User: How?\n\nAssistant: In steps.\n\n## Step 1\n\n{CODE}\n\n### Step 2\n\nDone.\n\n"


@pytest.mark.parametrize(
    "title",
    [
        "",
        "# A chat\n\n",
        "---\ntitle: A chat\n---\n",
        "# A chat\n\nOf Monday, exported.\n\n",
        "# A chat\n\n## 2024-05-01\n\n",
    ],
)
def test_headings_and_code_in_answers_of_a_chat_are_parts_of_them(title: str) -> None:
    text = f"{title}{ANSWER}User: And this?\n\n{ANSWER}"
    found = [(form, part) for form, part in regions(text) if form not in ("prose", "whole")]
    assert [form for form, _ in found] == ["heading"] * title.count("# ") + ["turn"] * 5
    assert [part for _, part in found if "Step 1" in part] == [ANSWER[len("User: How?\n\n") :].strip()] * 2
    (answer, _) = (region for region in text_regions(text) if region.whole)
    assert [text[whole.start : whole.end] for whole in answer.whole] == [CODE]


@pytest.mark.parametrize("rule", ["---\n", "-----\n\n", "\n---\n"])
def test_rules_between_turns_are_no_headings(rule: str) -> None:
    text = rule.join(f"{line}\n" for line in LINES.splitlines())
    assert [form for form, _ in regions(text)] == ["turn"] * 4
    several = "---\n".join(f"{line}\nAnd more of it\n" for line in LINES.splitlines())
    assert [form for form, _ in regions(several)] == ["turn"] * 4
    messages = "---\n".join(f"{json.dumps(message)}\n" for message in MESSAGES)
    assert [form for form, _ in regions(messages)] == ["turn"] * 4


def test_days_of_a_chat_are_headings() -> None:
    text = f"# Monday\n\n{LINES}\n# Tuesday\n\n{LINES}"
    assert [form for form, _ in regions(text)] == ["heading", *["turn"] * 4] * 2


def test_a_command_in_an_answer_is_no_heading() -> None:
    text = "# Help\n\nQ: How?\nA: As root:\n# apt install foo\n\nQ: And?\nA: So.\n\n# More\n\nQ: Why?\nA: Thus.\n"
    assert [form for form, _ in regions(text)] == [*("heading", *["turn"] * 4), *("heading", *["turn"] * 2)]


@pytest.mark.parametrize("above", ["---", "***", '<a name="b"></a>', "More of it.", "```\nls\n```"])
def test_a_heading_right_below_an_answer_is_one(above: str) -> None:
    text = f"# Help\n\nQ: How?\nA: So.\n\n{above}\n# Billing\n\nQ: And?\nA: So.\n\n# More\n\nQ: Why?\nA: Thus.\n"
    assert [part for form, part in regions(text) if form == "heading"] == ["# Help", "# Billing", "# More"]


def test_a_manual_that_begins_with_an_example_keeps_its_headings() -> None:
    headings = ["# Manual", "## Prompting", "### An example", "## Sampling", "## Ends"]
    text = "\n\n".join([*headings[:3], LINES, headings[3], "Temperature.", headings[4], "So:", LINES])
    assert [part for form, part in regions(text) if form == "heading"] == headings


def test_a_fence_that_an_answer_left_open_hides_no_turns() -> None:
    text = f"{LINES}\n```py\nx = 1\n\n{LINES}"
    assert [form for form, _ in regions(text)] == ["turn"] * 8
    closed = f"{LINES}\n```py\nx = 1\n{LINES}```"
    assert [form for form, _ in regions(closed)] == ["turn"] * 4


def test_code_in_a_long_turn_stays_whole() -> None:
    said = "Some words make a sentence of nine tokens. " * 4
    text = f"User: Why?\nAssistant: {said}\n\n{CODE}\n\n{said}\nUser: So.\nAssistant: Yes."
    pieces = make_splitter("structure", Words(), None, ChunkLimits(5, 40)).split(text, "markdown")
    assert sum(CODE in text[piece.start : piece.end] for piece in pieces) == 1
