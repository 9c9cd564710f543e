"""What a model's chat template writes around the texts of a prompt: it is rendered with marks in their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from ragcache.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# What stands for the texts while the chat template is rendered; no template writes such words itself.
SYSTEM, PASSAGES, ANSWER = "RAGCACHE-SYSTEM-TEXT", "RAGCACHE-PASSAGES", "RAGCACHE-ANSWER"
LATER = ("RAGCACHE-ANSWER-1", "RAGCACHE-QUESTION-2", "RAGCACHE-ANSWER-2", "RAGCACHE-QUESTION-3")

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Frame:
    """The strings around the system prompt, around the user's text, and between the turns of a conversation.

    Where the template knows no turns, those that went before are told in plain text inside the user's.
    """

    before_system: str
    after_system: str
    after_user: str  # up to where the answer starts
    after_answer: str = ""  # what ends an answer
    to_answer: str = "\nAnswer:"  # from an earlier question to its answer
    gap: str = " "  # in front of that answer, a part of its own text
    to_user: str = "\n\n"  # from that answer to the next question


def read_frame(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """Raises ModelError for a template that does not write our texts in our order."""
    known: Frame | None = getattr(tokenizer, "frame", None)  # a PlainTokenizer has it from an earlier start
    if known is not None:
        return known
    if not tokenizer.chat_template:
        return _plain_frame(tokenizer)
    apart = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PASSAGES}]
    together = [{"role": "user", "content": f"{SYSTEM}\n\n{PASSAGES}"}]  # for models that know no system role
    # Some templates write the system text into the *last* of several turns. It must stay in front of the chunks in all
    # of them, so a form that can hold turns is wanted before one that only serves a single question.
    for frame in chain(_turned(tokenizer, apart, together), _single(tokenizer, apart, together)):
        return frame
    raise ModelError(
        "the tokenizer's chat template does not write the system text and the user's text once each, in this order: "
        "choose an instruction-tuned model with an ordinary template"
    )


def _single(tokenizer: PreTrainedTokenizerBase, *forms: Messages) -> Iterator[Frame]:
    for messages in forms:
        cut = _cut_rendered(tokenizer, messages, SYSTEM, PASSAGES)
        if cut is not None:
            before_system, after_system, after_user = cut
            yield Frame(before_system, after_system, after_user, _after_answer(tokenizer, messages))


def _turned(tokenizer: PreTrainedTokenizerBase, *forms: Messages) -> Iterator[Frame]:
    """Frames of templates that write every turn alike, and the last one as if it were the only one."""
    roles = ("assistant", "user", "assistant", "user")
    later = [{"role": role, "content": mark} for role, mark in zip(roles, LATER, strict=True)]
    for messages in forms:
        cut = _cut_rendered(tokenizer, [*messages, *later], SYSTEM, PASSAGES, *LATER)
        if cut is None:
            continue
        before_system, after_system, *between, after_user = cut
        to_answer, to_user = between[:2]
        for single in _single(tokenizer, messages):
            alone = (single.before_system, single.after_system, single.after_user)
            if between[2:] == [to_answer, to_user] and alone == (before_system, after_system, after_user):
                yield replace(single, to_answer=to_answer, gap="", to_user=to_user)


def _plain_frame(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """For a base model: its prompts are plain text, behind the token that its texts begin with."""
    first = tokenizer.encode("a")[:1]
    begins = tokenizer.bos_token if first and first[0] == tokenizer.bos_token_id else None
    return Frame(begins or "", "\n\n", "\nAnswer:")


def _after_answer(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> str:
    from jinja2 import TemplateError

    try:
        rendered = _render(tokenizer, [*messages, {"role": "assistant", "content": ANSWER}], more=False)
    except TemplateError:
        return ""
    return rendered.rpartition(ANSWER)[2] if ANSWER in rendered else ""


def _cut_rendered(tokenizer: PreTrainedTokenizerBase, messages: Messages, *marks: str) -> list[str] | None:
    from jinja2 import TemplateError

    try:
        return _cut(_render(tokenizer, messages), marks)
    except TemplateError:
        return None


def _render(tokenizer: PreTrainedTokenizerBase, messages: Messages, more: bool = True) -> str:
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=more)
    assert isinstance(rendered, str)
    return rendered


def _cut(rendered: str, marks: Sequence[str]) -> list[str] | None:
    """The pieces around the marks, or None unless each stands there once, in this order."""
    pieces = []
    for mark in marks:
        if rendered.count(mark) != 1:
            return None
        piece, _, rendered = rendered.partition(mark)
        pieces.append(piece)
    return [*pieces, rendered]
