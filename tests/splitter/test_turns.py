from __future__ import annotations

import json

import pytest

from splitter.outline import turn_regions
from splitter.units import Border

TALK = [("user", "Hi?\n\nAre you there?"), ("assistant", "Yes."), ("user", "Good."), ("assistant", "Bye.")]
MESSAGES = [{"role": role, "content": words} for role, words in TALK]


def turns(text: str, sure: bool = False) -> list[tuple[str, str]]:
    return [(text[region.start : region.end].strip(), region.border.name) for region in turn_regions(text, sure)]


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
