"""Text, records and chats; encodings."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import LoadError
from app.loaders import parse
from app.loaders.base import Parsed
from splitter.turns import chat_regions

WORDS = "Größe, naïve café – 東京 😀\r\nsecond line\n"


def parsed(name: str, data: str | bytes) -> Parsed:
    found = parse(Path(name), data.encode() if isinstance(data, str) else data)
    found.check_integrity()
    return found


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le marked", "utf-16-be marked"])
def test_marked_and_plain_unicode_is_read_exactly(encoding: str) -> None:
    name = encoding.removesuffix(" marked")
    text = "\ufeff" + WORDS if encoding.endswith("marked") else WORDS
    assert parsed("a.txt", text.encode(name)).text == WORDS


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "café"),
        ("latin-1", "Le café était fermé à l'été dernier. Où êtes-vous allés, mes chers élèves ?"),
        ("cp1252", "“Quotes” – and €5"),
        ("latin-1", "plain English words. " * 5_000 + "naïve"),
        ("cp1250", "Zażółć gęślą jaźń. Książki są ciekawe, a źródła różne. Łódź leży w środku Polski."),
        ("cp1251", "Привет, мир. Это обычный русский текст о погоде и о людях."),
        ("cp932", "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"),
    ],
)
def test_older_encodings_are_recognised(encoding: str, text: str) -> None:
    assert parsed("a.txt", text.encode(encoding)).text == text


def test_utf8_with_a_few_wrong_bytes_stays_utf8(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        text = parsed("a.txt", "größer ".encode() * 50 + b"\xff end").text
    assert text == "größer " * 50 + "� end"
    assert "1 places are not valid UTF-8" in caplog.text


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_text_is_the_files_own(text: str) -> None:
    """But for a byte order mark, and unless it is blank or starts like something else."""
    try:
        found = parse(Path("a.md"), text.encode())
    except LoadError as error:
        assert not text.strip() or error.reason.startswith(("is a", "is an"))
    else:
        assert found.text == text.removeprefix("\ufeff")


def test_a_large_text_is_read_whole() -> None:
    text = "A line of some words – and a dash.\n" * 100_000
    assert parsed("a.txt", text).text == text


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# The guide\n\nwords", "The guide"),
        ("words\n\n## C# and F# ##\n", "C# and F#"),
        ("no heading\n#hashtag", "notes"),
        ("---\ntitle: 'The guide'\n# no heading\n---\n\nwords", "The guide"),
        ('---\r\ndate: 2024-01-01\r\ntitle: "A: B" # ours\r\ndraft: false\r\n---\r\nwords', "A: B"),
        ("---\ntitle: Plain C# words # ours\n...\nwords", "Plain C# words"),
        ("---\ntitle: 'It''s ours'\n---\nwords", "It's ours"),
        ('---\ntitle: "A \\"B\\""\n---\nwords', 'A "B"'),
        ("---\ntitle: Of the file\n---\n# Of the text\n", "Of the text"),
        ("---\ntitle: >-\n  folded\n---\nwords", "notes"),
        ("---\nof:\n  title: Nested\n---\nwords", "notes"),
        ("words\n\n---\ntitle: Late\n---\n", "notes"),
    ],
)
def test_markdown_takes_its_title_from_a_heading(text: str, title: str) -> None:
    assert parsed("notes.md", text).title == title


@pytest.mark.parametrize(
    "text",
    [
        "ID3 is an algorithm that builds decision trees.",
        "RIFF is a container format.",
        "BZh is odd.",
        "GIF89a is a format of images.",
        "OggS is what each page starts with.",
        "fLaC are four letters.",
        "A PDF starts with a line such as\n%PDF-1.7\nand so on.",
    ],
)
def test_texts_about_formats_are_texts(text: str) -> None:
    assert parsed("a.txt", text).text == text


def test_records_of_a_list_are_items() -> None:
    data = [
        {"name": "Ann", "age": 1.10, "at": {"x": None, "y": [1, 2]}},
        ["p", True],
        "word",
        {"of": [{"k": 1}, {"k": 2}]},
    ]
    text = json.dumps(data).replace("1.1,", "1.10,")
    assert parsed("a.json", text).text == "name: Ann\nage: 1.10\nat.y: 1, 2\n\np, true\n\nword\n\nof.k: 1\nof.k: 2"
    lines = "\r\n".join(json.dumps(one) for one in [{"a": 1}, {"a": 2}]) + "\n\n"
    assert parsed("a.jsonl", lines).text == "a: 1\n\na: 2"


def test_lists_of_records_within_an_object_are_items() -> None:
    data = {"version": 3, "people": [{"name": "Ann"}, {"name": "Bob"}]}
    assert parsed("a.json", json.dumps(data)).text == "version: 3\n\npeople.name: Ann\n\npeople.name: Bob"


def test_numbers_stay_as_they_are_written() -> None:
    assert parsed("a.json", "[1e400, 0.10, NaN, " + "9" * 5_000 + "]").text.split("\n\n") == [
        "1e400",
        "0.10",
        "NaN",
        "9" * 5_000,
    ]


def test_deep_records_within_the_limit_are_read() -> None:
    """Deeper than functions may call each other, if the parser allows it; long names do not multiply."""
    key = "k" * 10_000
    deep = f'{{"{key}":' * 900 + "1" + "}" * 900
    assert parsed("a.json", deep).text == "k" * 200 + ": 1"


TURNS = [("user", "Hi."), ("assistant", "Hello.\nHow can I help?")]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.json", [{"role": who, "content": what} for who, what in TURNS]),
        ("a.json", {"conversations": [{"from": who, "value": what} for who, what in TURNS]}),
        ("a.jsonl", {"messages": [{"role": who, "content": what} for who, what in TURNS]}),
    ],
)
def test_conversations_in_json_are_chats(name: str, data: object) -> None:
    found = parsed(name, json.dumps(data))
    assert (found.kind, found.text) == ("chat", "user: Hi.\n\nassistant: Hello.\nHow can I help?")


def test_what_is_told_beside_the_turns_stands_in_front_of_them() -> None:
    """Ids are left out."""
    turn = {"id": 7, "role": "user", "content": "Hi.", "tool_calls": []}
    case = {"id": 1, "uuid": {"made": "by hand"}, "time": 2024, "of": [{"a": 1}], "messages": [turn]}
    found = parsed("a.json", json.dumps(case))
    assert (found.kind, found.text) == ("chat", "uuid.made: by hand\ntime: 2024\n\nof.a: 1\n\nuser: Hi.")
    lines = [json.dumps({"topic": topic, "messages": [turn]}) for topic in ("crane", "rye")]
    found = parsed("a.jsonl", "\n".join(lines))
    assert (found.kind, found.text) == ("chat", "topic: crane\n\nuser: Hi.\n\ntopic: rye\n\nuser: Hi.")


def test_times_of_turns_stand_in_front_of_their_speakers() -> None:
    times = datetime(2024, 5, 1, 10, 0, 0, 123456, UTC).isoformat(), None, 1714557600
    roles = "user", "assistant", "user"
    turns = [{"role": role, "content": "Hi.", "created_at": time} for role, time in zip(roles, times, strict=True)]
    said = ["[2024-05-01T10:00:00.123456+00:00] user: Hi.", "assistant: Hi.", "[1714557600] user: Hi."]
    found = parsed("a.json", json.dumps(turns))
    assert (found.kind, found.text) == ("chat", "\n\n".join(said))
    regions = chat_regions(found.text)
    assert [found.text[region.start : region.end].strip() for region in regions] == said


@pytest.mark.parametrize(
    "record",
    [
        {"from": "Ann", "value": "Bob", "weight": 0.7},
        {"from": "EUR", "value": 1.08, "index": 3},
        {"role": "user", "content": "Hi.", "id": {"deep": "words"}},
        {"role": "user", "content": "Hi.", "time": "a time [that nobody] knows"},
        {"from": "a@b.c", "to": "d@e.f", "subject": "Invoice 4711", "text": "Please pay."},
        {"from": "EUR", "to": "USD", "value": "1.09"},
        {"role": "user", "content": "Hi.", "tool_calls": [{"name": "weather"}]},
        {"sender": "Ann", "message": "Hi.", "text": "Another one."},
    ],
)
def test_records_that_hold_more_than_a_turn_are_none(record: dict[str, object]) -> None:
    for name, data in {"a.json": [record], "a.jsonl": record}.items():
        found = parsed(name, json.dumps(data))
        assert found.kind == "items"
        assert len(found.text.split("\n")) == len(record)


def test_all_values_of_a_name_are_told() -> None:
    assert parsed("a.json", '{"a": "one", "b": 1, "a": "two", "a": {"c": 3}}').text == "a: one\na: two\na.c: 3\nb: 1"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("User: Hi\nAssistant: Hello\n\nUser: Why?\nAssistant: So.\nMore of it.\n", "chat"),
        ("[31.12.20, 21:15:03] Ann: Hi\n[31.12.20, 21:16:00] Bob B: Yes\n" * 2, "chat"),
        ("12/31/20, 9:15 PM - Ann: Hi\n12/31/20, 9:16 PM - Bob: Yes\n" * 2, "chat"),
        ("[12:01] <ann> hi\n[12:02] <bob> yes\n" * 2, "chat"),
        ("Name: Ann\nAge: 7\n\nName: Bob\nAge: 8\n", "prose"),
        ("Note: this.\nIt is a text. The user: he writes.\nIt goes on.\n" * 5, "prose"),
        ("User: Hi\nAssistant: Hello\n", "prose"),
    ],
)
def test_chat_logs_are_recognised(text: str, kind: str) -> None:
    assert parsed("a.txt", text).kind == kind
