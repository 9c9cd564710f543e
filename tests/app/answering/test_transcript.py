"""A conversation as Markdown: every word of it is there, and none of it is markup."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from app import RagPipeline
from app.answering.transcript import markdown_of
from app.library.catalog.records import Message, StoredConversation

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
CONVERSATION = StoredConversation("0" * 32, 1, "Lighthouses", NOW, NOW)
OURS = {"heading", "paragraph", "blockquote", "ordered_list", "list_item", "inline", "text", "hardbreak", "softbreak"}
OURS |= {"text_special"}


def message(role: str, text: str) -> Message:
    return Message(1, CONVERSATION.id, role, text, (), None, NOW)  # type: ignore[arg-type]  # roles are right


def parsed(markdown: str) -> list[Token]:
    """As the most generous readers do: with HTML, addresses as links, tables and strikethrough."""
    reader = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    return [inner for token in reader.parse(markdown) for inner in (token, *(token.children or ()))]


def kinds(markdown: str) -> set[str]:
    return {one.type.removesuffix("_open").removesuffix("_close") for one in parsed(markdown)}


def words(markdown: str) -> str:
    shown = [
        one.content if one.type in ("text", "text_special") else "\n" for one in parsed(markdown) if not one.children
    ]
    return " ".join("".join(shown).split())


@pytest.mark.parametrize(
    "text",
    [
        "# heading",
        "a\n===\nb\n---",
        "<script>alert(1)</script> <!-- x --> &lt; <https://evil.example>",
        "![i](https://evil.example/x.png) [l](javascript:x) [r]: https://evil.example",
        "[r][r]\n\n[r]: https://evil.example 'title'",
        "```\ncode\n```\n~~~\nmore",
        "    indented\n\ttab",
        "- a\n+ b\n* c\n1. d\n2) e",
        "> quoted\n>> twice",
        "| a | b |\n|---|---|\n| c | d |",
        "*a* _b_ **c** __d__ ~~e~~ `f` \\*g\\* \\",
        "line\\\nnext  \nlast",
        "***\n___\n* * *",
        "http://evil.example www.evil.example a@b.example",
        "\u202egpj.x\u2066",
        "$x$ [^1]\n\n[^1]: note",
        "\n\n## Answer\n\n> forged",
        "12345678901. x",
    ],
)
def test_what_was_said_is_no_markup(text: str) -> None:
    told = markdown_of(replace(CONVERSATION, title=text), text, [message("user", text), message("assistant", text)])
    assert kinds(told) <= OURS
    tokens = parsed(told)
    assert [one.tag for one in tokens if one.type == "heading_open"] == ["h1", "h2", "h2"]
    assert not any(one.type == "ordered_list_open" for one in tokens)
    assert not re.search(r"https?://|www\.|\w@", told)  # which some readers make links of
    plain = " ".join("".join("\ufffd" if ord(one) in (0x202E, 0x2066) else one for one in text).split())
    assert words(told).count(plain) == 4


def test_notes_stand_behind_an_answer() -> None:
    told = markdown_of(CONVERSATION, "c", [replace(message("assistant", "Yes"), notes=("# cut *off*",))])
    assert told.endswith("> Yes\n\nNote: \\# cut \\*off\\*\n")
    assert kinds(told) <= OURS


def test_lines_stay_lines() -> None:
    told = markdown_of(CONVERSATION, "c", [message("assistant", "one\n  two\n\nthree")])
    assert told.endswith("> one\\\n> \u00a0\u00a0two\n> \n> three\n")


def test_citations_are_told_with_their_places(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    answer = conversation.ask("Who designed the lighthouse?")
    told = markdown_of(CONVERSATION, "default", conversation.messages)
    listed = [one for one in told.splitlines() if one[:1].isdigit()]
    assert len(listed) == len(answer.citations)
    assert listed[0].startswith(f"1. {answer.citations[0].title}")
    assert "ordered_list" in kinds(told)
