"""From texts to the segments of a prompt, by the model's own tokenizer and chat template.

What transformers makes of a model folder's files, whose import takes longer than an answer, is recorded when it first
reads them: the tokenizer itself, as it is then, the special ids, and what the chat template writes. From then on the
`tokenizers` library alone does.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from app.models.folders import resolve_model
from app.models.plain_tokenizer import Frame, PlainTokenizer
from app.settings import Settings
from app.vocabulary import Vocabulary
from app.wording import Wording
from ragcache.errors import PromptError
from ragcache.types import Chunk, System, Text
from splitter.base import SURROGATE, FastTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KIND = "tokenizer"
Turn = tuple[str, str]  # a question that was asked before, and its answer


def open_tokenizer(settings: Settings, folder: Path) -> PreTrainedTokenizerBase:
    """Of a local model folder, for prompts and splitters; nothing is fetched. Raises ModelError."""
    records = settings.records
    basis = records.basis(folder)
    if (values := records.read(KIND, folder)) is not None:
        try:
            return cast("PreTrainedTokenizerBase", PlainTokenizer(values))
        except (KeyError, TypeError, ValueError):
            pass  # it is read anew
    from app.models.chat_template import load_tokenizer, recorded  # it imports transformers

    tokenizer = load_tokenizer(folder)
    if (values := recorded(tokenizer)) is not None:
        records.write(KIND, folder, values, basis)
    return tokenizer


def frame_of(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """Raises ModelError for a chat template that does not write our texts in our order."""
    if isinstance(tokenizer, PlainTokenizer):
        return tokenizer.frame
    from app.models.chat_template import read_frame

    return read_frame(tokenizer)


def check_text(what: str, text: str) -> str:
    """Text that a user typed, as it is. Raises PromptError for what no tokenizer takes."""
    if found := SURROGATE.search(text):
        raise PromptError(
            f"{what} is no valid text: {text[max(0, found.start() - 16) : found.end()]!r} ends in a byte or half of a "
            "character that is no UTF-8. Check the encoding of your terminal, pipe or program"
        )
    return text


def check_question(text: str) -> str:
    """Its words. Raises PromptError where there are none, too."""
    words = check_text("the question", text).strip()
    if not words:
        raise PromptError("the question is empty: ask something")
    return words


class PromptTemplate:
    """Segments of one application: its system prompt is fixed, and the ids of a chunk depend on its text alone.

    Texts are plain: what looks like a control token in a document is tokenised as the characters that it is.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, system_prompt: str, wording: Wording | None = None):
        self._tokenizer = tokenizer
        self._wording = wording or Wording()
        self.tokens = FastTokens(tokenizer)  # for the splitters too, which count what is prompted
        self.vocabulary = Vocabulary(tokenizer.backend_tokenizer)
        frame = frame_of(tokenizer)
        # The control tokens are read here, once. Whether they are is a state of the tokenizer that threads share, and
        # afterwards it never changes again.
        self._tail = self._control(frame.after_user)
        self._to_answer, self._to_user = self._control(frame.to_answer), self._control(frame.to_user)
        self._gap = frame.gap
        self.stop = self._stop(frame)  # ids that end an answer
        self._head, self._middle = self._control(frame.before_system), self._control(frame.after_system)
        # Tokens that a prompt puts around each chunk. Where they melt into the chunk's own it takes one less.
        self.joins = sum(len(self._plain(text)) for text in (self._wording.before_chunk, self._wording.after_chunk))
        self._border = ""
        self._system = self._behind(system_prompt)

    def behind(self, system_prompt: str) -> Self:
        """The same with another system prompt."""
        other = copy(self)
        other._system = self._behind(system_prompt)
        return other

    def within(self, border: str) -> Self:
        """The same with all its segments within a border."""
        other = copy(self)
        other._border, other._system = border, replace(self._system, border=border)
        return other

    def _behind(self, system_prompt: str) -> System:
        text = self._plain(check_text("the system prompt", system_prompt).strip())
        system = System((*self._head, *text, *self._middle, *self._plain(self._wording.before_passages)), self._border)
        if not len(system):
            raise PromptError("the system prompt is empty, and this model's prompts start with it: give it some words")
        return system

    def system(self) -> System:
        """All that stands before the first chunk."""
        return self._system

    def chunk(self, text: str) -> Chunk:
        words = text.strip()
        if not words:
            raise PromptError("an empty passage cannot stand in a prompt: drop it when splitting")
        return Chunk(self._plain(f"{self._wording.before_chunk}{words}{self._wording.after_chunk}"), self._border)

    def question(self, text: str) -> Text:
        """All that stands after the last chunk, up to where the answer starts."""
        return self.turns((), text)

    def turns(self, history: Sequence[Turn], question: str, *, passages: bool = True) -> Text:
        """The same with earlier turns, oldest first, as the model's own template writes them.

        The chunks of this question stand in front of the *first* one: so System and chunks are the same start of a
        prompt in every turn, and the cache serves them all. `passages` is False where there are no chunks.
        """
        earlier = [token for turn in history for token in self.turn(turn)]
        empty = () if passages else self._plain(self._wording.no_passages)
        return Text((*empty, *earlier, *self._asked(question), *self._tail), self._border)

    def turn(self, turn: Turn) -> tuple[int, ...]:
        """The ids of one earlier turn, which are the same wherever it stands."""
        question, answer = turn
        answered = self._plain(f"{self._gap}{answer.strip()}")
        return (*self._asked(question), *self._to_answer, *answered, *self._to_user)

    def count(self, text: str) -> int:
        """Tokens of a bare text."""
        return len(self._plain(text))

    def decode(self, ids: Sequence[int]) -> str:
        decoded = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        assert isinstance(decoded, str)
        return decoded

    def _asked(self, question: str) -> tuple[int, ...]:
        return self._plain(f"{self._wording.before_question}{check_question(question)}{self._wording.after_question}")

    def _plain(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokens.ids(text))

    def _control(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False))

    def _stop(self, frame: Frame) -> frozenset[int]:
        """The token that ends a text, and the first one behind an answer that is none of its words."""
        added = self._tokenizer.added_tokens_decoder  # some of them are blanks, which any text has
        marks = {*self._tokenizer.all_special_ids, *(one for one, token in added.items() if token.content.strip())}
        ended = [token for token in self._control(frame.after_answer) if token in marks]
        return frozenset(marks & {self._tokenizer.eos_token_id, *ended[:1]})


def open_template(settings: Settings) -> PromptTemplate:
    """Of the model of the settings, of which nothing but the tokenizer is read. Raises ModelError and PromptError."""
    folder = resolve_model(settings.model, settings.cache_dir)
    return PromptTemplate(open_tokenizer(settings, folder), settings.system_prompt)
