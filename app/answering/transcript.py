"""A conversation as a text to keep. Whatever was asked and answered stays the words that it is: no text in it becomes a
heading, a link, an image or markup of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from app.answering import Citation
from app.library.catalog.records import Message, StoredConversation

_MARKUP = re.compile(r"[\\`*_\[\]<>#|~&$!]")
_FIRST = re.compile(r"^([-+=]|\d+[.)])")  # what would begin a list or a rule
_ADDRESS = re.compile(r"(?i)(https?|ftp|mailto|xmpp):|\bwww\.|@")
# And what turns the direction of writing.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SAID = {"user": "Question", "assistant": "Answer", "system": "System"}


def markdown_of(conversation: StoredConversation, collection: str, messages: Sequence[Message]) -> str:
    title = _plain(conversation.title) or "Conversation"
    lines = [f"# {title}", "", f"{_plain(collection)}, {conversation.created:%Y-%m-%d %H:%M} UTC"]
    for message in messages:
        lines += ["", f"## {_SAID[message.role]}", "", *_quoted(message.content)]
        if message.citations:
            lines += ["", *_sources(message)]
        for note in message.notes:
            lines += ["", f"Note: {_plain(note)}"]
    return "\n".join(lines) + "\n"


def _sources(message: Message) -> Iterator[str]:
    citations = [Citation.from_dict(one) for one in message.citations]
    sources = {one.source for one in citations}
    for one in citations:
        quote = f": “{_plain(one.quote.text)}”" if one.quote else ""
        yield f"{one.number}. {_plain(one.place_among(sources))}{quote}"


def _quoted(text: str) -> list[str]:
    """Line by line, as far from the margin as they are."""
    lines = [_indent(line) + _plain(line) for line in text.splitlines()]
    broken = [f"{line}\\" if line and behind else line for line, behind in pairwise([*lines, ""])]
    return [f"> {line}" for line in broken]


def _indent(line: str) -> str:
    if not line.strip():
        return ""
    expanded = line.expandtabs(4)
    return "\u00a0" * (len(expanded) - len(expanded.lstrip(" ")))


def _plain(text: str) -> str:
    """On one line, as characters alone."""
    line = " ".join(_CONTROL.sub("\ufffd", text.encode("utf-8", "replace").decode()).split())
    escaped = _FIRST.sub(lambda found: f"{found[1][:-1]}\\{found[1][-1]}", _MARKUP.sub(r"\\\g<0>", line))
    return _ADDRESS.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", escaped)
