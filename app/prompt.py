"""From texts to the segments of a prompt, by the model's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from ragcache.errors import ModelError, PromptError
from ragcache.types import Chunk, System, Text
from splitter.tokens import FastTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# What stands for the texts while the chat template is rendered; no template writes such words itself.
SYSTEM, PASSAGES, ANSWER = "RAGCACHE-SYSTEM-TEXT", "RAGCACHE-PASSAGES", "RAGCACHE-ANSWER"


@dataclass(frozen=True)
class Wording:
    """The fixed strings around the texts. Cached KV belongs to them: after a change, documents are computed again."""

    before_passages: str = "Documents:\n\n"  # at the head of the user's turn
    before_chunk: str = ""
    after_chunk: str = "\n\n"
    before_question: str = "Question: "
    after_question: str = ""


@dataclass(frozen=True)
class Frame:
    """What the chat template writes around the system prompt and around the user's text, and what ends an answer."""

    before_system: str
    after_system: str
    after_user: str
    after_answer: str = ""


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a local model folder; nothing is fetched. Raises ModelError."""
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelError(f"cannot load the tokenizer in {folder}: {reason}") from error
    return tokenizer


class PromptTemplate:
    """Segments of one application: its system prompt is fixed, and the ids of a chunk depend on its text alone.

    Texts are plain: what looks like a control token in a document is tokenised as the characters that it is.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, system_prompt: str, wording: Wording | None = None):
        self._tokenizer = tokenizer
        self._wording = wording or Wording()
        frame = _frame(tokenizer)
        # The control tokens are read here, once. Whether they are is a state of the tokenizer that threads share, and
        # afterwards it never changes again.
        self._tail = self._control(frame.after_user)
        self.stop = self._stop(frame)  # ids that end an answer
        head = self._control(frame.before_system)
        middle = self._control(frame.after_system)
        system = self._plain(system_prompt.strip())
        self._system = System((*head, *system, *middle, *self._plain(self._wording.before_passages)))
        if not len(self._system):
            raise PromptError("the system prompt is empty, and this model's prompts start with it: give it some words")

    def system(self) -> System:
        """All that stands before the first chunk."""
        return self._system

    def chunk(self, text: str) -> Chunk:
        words = text.strip()
        if not words:
            raise PromptError("an empty passage cannot stand in a prompt: drop it when splitting")
        return Chunk(self._plain(f"{self._wording.before_chunk}{words}{self._wording.after_chunk}"))

    def question(self, text: str) -> Text:
        """All that stands after the last chunk, up to where the answer starts."""
        words = text.strip()
        if not words:
            raise PromptError("the question is empty: ask something")
        asked = f"{self._wording.before_question}{words}{self._wording.after_question}"
        return Text((*self._plain(asked), *self._tail))

    def count(self, text: str) -> int:
        """Tokens of a bare text."""
        return len(self._plain(text))

    @cached_property
    def tokens(self) -> FastTokens:
        """For the splitters."""
        return FastTokens(self._tokenizer)

    def decode(self, ids: Sequence[int]) -> str:
        decoded = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        assert isinstance(decoded, str)
        return decoded

    def _plain(self, text: str) -> tuple[int, ...]:
        # `verbose` would warn of texts longer than the tokenizer thinks its model takes; documents are.
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True, verbose=False))

    def _control(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False))

    def _stop(self, frame: Frame) -> frozenset[int]:
        ends = {self._tokenizer.eos_token_id, *self._control(frame.after_answer)[:1]}
        return frozenset(token for token in ends if token in self._tokenizer.all_special_ids)


def _frame(tokenizer: PreTrainedTokenizerBase) -> Frame:
    if not tokenizer.chat_template:
        return _plain_frame(tokenizer)
    apart = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PASSAGES}]
    together = [{"role": "user", "content": f"{SYSTEM}\n\n{PASSAGES}"}]  # for models that know no system role
    for messages in (apart, together):
        try:
            cut = _cut(_render(tokenizer, messages), SYSTEM, PASSAGES)
        except TemplateError:
            continue
        if cut is not None:
            before_system, after_system, after_user = cut
            return Frame(before_system, after_system, after_user, _after_answer(tokenizer, messages))
    raise ModelError(
        "the tokenizer's chat template does not write the system text and the user's text once each, in this order: "
        "choose an instruction-tuned model with an ordinary template"
    )


def _plain_frame(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """For a base model: its prompts are plain text, behind the token that its texts begin with."""
    first = tokenizer.encode("a")[:1]
    begins = tokenizer.bos_token if first and first[0] == tokenizer.bos_token_id else None
    return Frame(begins or "", "\n\n", "\nAnswer:")


def _after_answer(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> str:
    try:
        rendered = _render(tokenizer, [*messages, {"role": "assistant", "content": ANSWER}], more=False)
    except TemplateError:
        return ""
    return rendered.rpartition(ANSWER)[2] if ANSWER in rendered else ""


def _render(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], more: bool = True) -> str:
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=more)
    assert isinstance(rendered, str)
    return rendered


def _cut(rendered: str, *marks: str) -> list[str] | None:
    """The pieces around the marks, or None unless each stands there once, in this order."""
    pieces = []
    for mark in marks:
        if rendered.count(mark) != 1:
            return None
        piece, _, rendered = rendered.partition(mark)
        pieces.append(piece)
    return [*pieces, rendered]
