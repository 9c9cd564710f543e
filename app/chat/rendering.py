"""Messages as the segments of a prompt, by the model's own chat template.

Where texts look like nothing but texts, the ids are those that transformers gives for the same messages. A text that
spells a control token is rendered as a mark, and put in its place as the characters that it is; so is a context cache,
as its chunks.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from app.chat.messages import CachePart, ChatTurn, Resolve, TextPart
from app.prompt import check_text, frame_of
from ragcache.errors import PromptError
from ragcache.types import Segment, System, Text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from splitter.base import FastTokens

Piece = str | TextPart | CachePart  # a str is what the template writes


class ChatRenderer:
    """Threads may share it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, plain: FastTokens):
        """Whether control tokens are read is a state of a tokenizer: this one, which is nobody else's, always reads
        them, and that of `plain` never.
        """
        self._tokenizer = tokenizer
        self._tokens = plain
        self._controls = [token.content for token in tokenizer.added_tokens_decoder.values()]

    def segments(
        self, turns: Sequence[ChatTurn], resolve: Resolve, border: str = "", most: int = 1 << 20
    ) -> list[Segment]:
        """Raises PromptError for what cannot be rendered, or has caches of more than so many tokens, and what `resolve`
        raises.

        In front of caches, all that stands before the first message that is not the system's is the System segment.
        """
        if not turns:
            raise PromptError("there are no messages: give at least one")
        turns = list(map(_joined, turns))
        for turn in turns:
            for text in turn.texts:
                check_text(f"a message of the {turn.role}", text)
        if not any(turn.caches for turn in turns):
            controls = self._spelled(turns)
            return [Text(self._ids([*self._pieces(turns, controls)], controls), border)]
        return self._with_caches(turns, resolve, border, most)

    def plain(self, text: str) -> tuple[int, ...]:
        """Of a prompt that its author has written whole, control tokens too."""
        return self._encoded(check_text("the prompt", text), begin=True)

    def _with_caches(self, turns: Sequence[ChatTurn], resolve: Resolve, border: str, most: int) -> list[Segment]:
        head = len(turns[0].parts) if turns[0].role == "system" and not turns[0].caches else 0
        controls = self._spelled(turns)
        pieces = [*self._pieces(turns, controls)]
        places = [place for place, piece in enumerate(pieces) if not isinstance(piece, str)]
        first = places[head] if head < len(places) else len(pieces)
        segments: list[Segment] = []
        if ids := self._ids(pieces[:first], controls):
            segments.append(System(ids, border))
        waiting: list[Piece] = []
        for piece in pieces[first:]:
            if not isinstance(piece, CachePart):
                waiting.append(piece)
                continue
            segments += [Text(ids, border)] if (ids := self._ids(waiting, controls)) else []
            waiting = []
            segments += (chunks := resolve(piece.cache_id))
            most -= sum(map(len, chunks))
            if most < 0:  # one cache may be named in every part of a long body
                raise PromptError("the context caches of these messages have more tokens than the model's context")
        segments += [Text(ids, border)] if (ids := self._ids(waiting, controls)) else []
        if not isinstance(segments[-1], Text):
            raise PromptError("a prompt ends with a context cache: this model's template writes nothing behind it")
        return segments

    def _pieces(self, turns: Sequence[ChatTurn], controls: Sequence[str]) -> Iterator[Piece]:
        """In the order of the prompt. It takes time by the length of all, however many parts there are."""
        if all(isinstance(part, TextPart) for turn in turns for part in turn.parts) and not controls:
            yield self._rendered([{"role": turn.role, "content": "".join(turn.texts)} for turn in turns])
            return
        marks: dict[str, TextPart | CachePart] = {}
        told = []
        for turn in turns:
            own = {f"RAGCACHE{secrets.token_hex(8).upper()}": part for part in turn.parts}
            told.append({"role": turn.role, "content": "".join(own)})
            marks |= own
        rendered, end = self._rendered(told), 0
        for mark, part in marks.items():
            start = rendered.find(mark, end)
            if start < 0:
                raise PromptError("the model's chat template leaves out or turns round some of the messages")
            if start > end:
                yield rendered[end:start]
            yield part
            end = start + len(mark)
        if end < len(rendered):
            yield rendered[end:]

    def _spelled(self, turns: Sequence[ChatTurn]) -> list[str]:
        """The control tokens whose characters some message has."""
        texts = [text for turn in turns for text in turn.texts]
        return [control for control in self._controls if any(control in text for text in texts)]

    def _rendered(self, messages: list[dict[str, str]]) -> str:
        if not self._tokenizer.chat_template:
            return self._begun(messages)
        try:
            found = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise PromptError(f"the model's chat template refuses these messages: {error}") from error
        assert isinstance(found, str)
        return found

    def _begun(self, messages: list[dict[str, str]]) -> str:
        """For a base model: plain text, behind the token that its texts begin with."""
        return f"{frame_of(self._tokenizer).before_system}{_without_template(messages)}"

    def _ids(self, pieces: Sequence[Piece], controls: Sequence[str]) -> tuple[int, ...]:
        """Texts that are only texts are read together with what stands around them, as transformers does."""
        found: list[int] = []
        joined = ""
        for piece in pieces:
            assert not isinstance(piece, CachePart)
            text = piece if isinstance(piece, str) else piece.text
            if isinstance(piece, TextPart) and any(control in text for control in controls):
                found += self._encoded(joined)
                found += self._tokens.ids(text)
                joined = ""
            else:
                joined += text
        return (*found, *self._encoded(joined))

    def _encoded(self, text: str, *, begin: bool = False) -> tuple[int, ...]:
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=begin, split_special_tokens=False)
        return tuple(found)


def _joined(turn: ChatTurn) -> ChatTurn:
    """Texts that follow one another are one: what looks like a control token may be cut between them."""
    parts: list[TextPart | CachePart] = []
    for is_text, group in groupby(turn.parts, key=lambda part: isinstance(part, TextPart)):
        found = list(group)
        parts += [TextPart("".join(one.text for one in found if isinstance(one, TextPart)))] if is_text else found
    return replace(turn, parts=tuple(parts))


def _without_template(messages: Sequence[dict[str, str]]) -> str:
    """For a base model, as its prompts over documents are: plain text."""
    ends = {"system": "\n\n", "user": "\nAnswer:", "assistant": "\n\n"}
    before = {"assistant": " "}
    return "".join(f"{before.get(one['role'], '')}{one['content']}{ends[one['role']]}" for one in messages)
