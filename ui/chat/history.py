"""What was said, as few blocks of HTML: a long conversation is as quick as a short one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ui.chat.answer import answered
from ui.chat.report import bar
from ui.markup import escape

SHOWN = 40  # messages, before somebody asks for more
EARLIER = "chat-earlier"  # action
COMING, COME = "The answer is on its way.", "The answer is there."
WAITING = f'<div class="rc-waiting" role="img" aria-label="{COMING}"><i></i><i></i><i></i></div>'
Message = Mapping[str, Any]


def said(messages: Sequence[Message], first: int) -> str:
    """`first`: the place of the first of them in the conversation."""
    return "".join(_message(one, first + place) for place, one in enumerate(messages))


def question(text: str) -> str:
    return f'<div class="rc-question" dir="auto">{escape(text)}</div>'


def answer(message: Message, number: int, *, just_come: bool = False) -> str:
    report = message.get("report")
    told = bar(report, message.get("citations") or ()) if report else ""
    told += _heard(COME) if just_come else ""
    return f'<div class="rc-said">{answered(message, number)}{_noted(message)}{told}</div>'


def under_way(text: str, citations: Sequence[Message], number: int) -> str:
    """As much as has come, in the same place and look."""
    if not text:
        return f'<div class="rc-said">{WAITING}{_heard(COMING)}</div>'
    return f'<div class="rc-said">{answered({"content": text, "citations": citations}, number)}</div>'


def earlier(hidden: int) -> str:
    return f'<p class="rc-earlier"><button class="rc-quiet" data-rc="{EARLIER}">Show {hidden:,} earlier</button></p>'


def _heard(text: str) -> str:
    """By whoever listens to the page."""
    return f'<span class="rc-tell" data-rc-tell="{text}"></span>'


def _noted(message: Message) -> str:
    """What a server says that a reader should know of it."""
    notes = "".join(f"<p>{escape(str(note))}</p>" for note in message.get("notes") or ())
    return f'<div class="rc-notes" role="note">{notes}</div>' if notes else ""


def _message(message: Message, number: int) -> str:
    return answer(message, number) if message["role"] == "assistant" else question(str(message["content"]))
