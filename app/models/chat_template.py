"""A model's tokenizer as transformers reads it, and what its chat template writes around the texts of a prompt.

The template is rendered with marks in the places of the texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TokenizersBackend

from app.models.plain_tokenizer import IDS, Frame
from ragcache.errors import ModelError

# What stands for the texts while the chat template is rendered; no template writes such words itself.
SYSTEM, PASSAGES, ANSWER = "RAGCACHE-SYSTEM-TEXT", "RAGCACHE-PASSAGES", "RAGCACHE-ANSWER"
LATER = ("RAGCACHE-ANSWER-1", "RAGCACHE-QUESTION-2", "RAGCACHE-ANSWER-2", "RAGCACHE-QUESTION-3")

# What a template is told that writes today's date: with another one each day no KV behind it would serve the next day.
DAY = date(2024, 7, 26)

Messages = list[dict[str, str]]


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a local model folder; nothing is fetched. Raises ModelError."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelError(f"cannot load the tokenizer in {folder}: {reason}") from error
    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer in {folder} cannot tell where each token stands, which splitting asks for: choose a model "
            "that has a tokenizer.json"
        )
    return tokenizer


def recorded(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """None for one that does more than its backend, or whose chat template cannot be used."""
    kind = type(tokenizer)
    own = [kind._encode_plus is TokenizersBackend._encode_plus, kind._decode is TokenizersBackend._decode]
    own += [kind.encode is TokenizersBackend.encode, kind.decode is TokenizersBackend.decode]
    own += [kind.__call__ is TokenizersBackend.__call__]
    if not isinstance(tokenizer, TokenizersBackend) or not all(own) or tokenizer.clean_up_tokenization_spaces:
        return None
    if tokenizer.chat_template is not None and not isinstance(tokenizer.chat_template, str):
        return None
    try:
        frame = read_frame(tokenizer)
    except ModelError:
        return None
    return {
        "backend": tokenizer.backend_tokenizer.to_str(),
        "frame": asdict(frame),
        "all_special_ids": tokenizer.all_special_ids,
        "chat_template": tokenizer.chat_template,
        **{name: getattr(tokenizer, name) for name in IDS},
    }


def read_frame(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """Raises ModelError for a template that does not write our texts in our order."""
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
    try:
        rendered = _render(tokenizer, [*messages, {"role": "assistant", "content": ANSWER}], more=False)
    except TemplateError:
        return ""
    return rendered.rpartition(ANSWER)[2] if ANSWER in rendered else ""


def _cut_rendered(tokenizer: PreTrainedTokenizerBase, messages: Messages, *marks: str) -> list[str] | None:
    try:
        return _cut(_render(tokenizer, messages), marks)
    except TemplateError:
        return None


def _render(tokenizer: PreTrainedTokenizerBase, messages: Messages, more: bool = True) -> str:
    rendered = tokenizer.apply_chat_template(
        messages,
        tokenize=False,
        add_generation_prompt=more,
        enable_thinking=False,  # aloud, first: answers come from the passages, soon, and are shown as they come
        strftime_now=DAY.strftime,
    )
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
