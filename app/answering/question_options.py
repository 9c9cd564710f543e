"""What is asked of a pipeline, and whether it can be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import TYPE_CHECKING, Concatenate, ParamSpec, SupportsIndex, TypeVar, get_args

from app.settings import MOST_NEIGHBOURS, PromptOrder, RetrievalMode
from ragcache.errors import ConfigError
from ragcache.sampling import Sampling
from ragcache.together import Together

if TYPE_CHECKING:
    from app.prompt import Turn

Where = Mapping[str, Sequence[int | str]]
Options = ParamSpec("Options")
Owner = TypeVar("Owner")
First = TypeVar("First")
Result = TypeVar("Result")
MOST_STOPS, LONGEST_STOP = 4, 256  # as OpenAI has it; and what may be a beginning is held back
KIND = "kind"  # of a field: what it is an instance of, and what to give else


def _kind(kind: type, wanted: str) -> Mapping[str, tuple[type, str]]:
    return {KIND: (kind, wanted)}


_WHOLE = _kind(SupportsIndex, "a whole number")
_TEXT = _kind(str, "a text")
_SHARE = _kind(Real, "a number from 0 to 1")
_WHERE = _kind(Mapping, "lists of values by document, source or kind")
_TURNS = _kind(Sequence, "pairs of a question and its answer")
_STOPS = _kind(Sequence, f"up to {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters")


def _is_turn(value: object) -> bool:
    """A text of two characters is no pair of texts."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return len(value) == 2 and all(isinstance(one, str) for one in value)


def _is_stop(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_STOP


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is None is as in the settings. An unknown name raises TypeError. Methods take them by `taking`."""

    collection: str | None = field(default=None, metadata=_TEXT)
    # In place of its name: that one, whatever it is called by now.
    collection_id: int | None = field(default=None, metadata=_WHOLE)
    top_k: int | None = field(default=None, metadata=_WHOLE)
    top_tokens: int | None = field(default=None, metadata=_WHOLE)  # of all chunks together; 0 sets no budget
    neighbours: int | None = field(default=None, metadata=_WHOLE)  # on each side of a hit; 16 at most
    # "cached" is as what is cached fits best; "best" is best first, where it fits least.
    prompt_order: PromptOrder | None = None
    retrieval: RetrievalMode | None = None  # by meaning ("vector"), by words ("keyword"), or both
    # Share of relevance against novelty; 1 looks at relevance alone.
    mmr: float | None = field(default=None, metadata=_SHARE)
    # {"document": ids or sources, "source": …, "kind": …}: only chunks of these.
    where: Where | None = field(default=None, metadata=_WHERE)
    max_tokens: int | None = field(default=None, metadata=_WHOLE)
    linker: str | None = field(default=None, metadata=_TEXT)  # "full" uses no cache
    # All of it; Sampling() is greedy.
    sampling: Sampling | None = field(default=None, metadata=_kind(Sampling, "a Sampling of ragcache"))
    # Earlier questions with their answers; a Conversation keeps its own.
    history: Sequence[Turn] = field(default=(), metadata=_TURNS)
    # Whether each citation shall name its best sentence.
    quotes: bool = field(default=True, metadata=_kind(bool, "True or False"))
    stop: Sequence[str] = field(default=(), metadata=_STOPS)  # texts, before the first of which the answer ends

    # The system prompt, in place of the application's.
    system: str | None = field(default=None, metadata=_TEXT)
    # Nobody but him is served by its KV: what is captured stands behind the application's.
    system_owner: str = field(default="", metadata=_TEXT)
    border: str = field(default="", metadata=_TEXT)  # whose KV may serve it: see Segment of ragcache
    # With other answers to it, whose prompt the torch engine computes once.
    together: Together | None = field(default=None, metadata=_kind(Together, "a Together of ragcache"))

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None or KIND not in one.metadata:
                continue
            kind, wanted = one.metadata[KIND]
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise ConfigError(f"{one.name}={value!r}: give {wanted}")
        if any(isinstance(values, str) or not isinstance(values, Collection) for values in (self.where or {}).values()):
            raise ConfigError(f"where={self.where!r}: give {_WHERE[KIND][1]}")
        for name in ("top_k", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value}: ask for at least 1")
        if self.top_tokens is not None and self.top_tokens < 0:
            raise ConfigError(f"top_tokens={self.top_tokens}: give 0 or more")
        if self.prompt_order not in (None, *get_args(PromptOrder)):
            raise ConfigError(f"prompt_order={self.prompt_order!r}: choose from {', '.join(get_args(PromptOrder))}")
        if self.retrieval not in (None, *get_args(RetrievalMode)):
            raise ConfigError(f"retrieval={self.retrieval!r}: choose from {', '.join(get_args(RetrievalMode))}")
        if self.mmr is not None and not 0 <= self.mmr <= 1:
            raise ConfigError(f"mmr={self.mmr}: give {_SHARE[KIND][1]}")
        if isinstance(self.history, str) or not all(map(_is_turn, self.history)):
            raise ConfigError(f"history={self.history!r:.100}: give {_TURNS[KIND][1]}")
        if isinstance(self.stop, str) or len(self.stop) > MOST_STOPS or not all(map(_is_stop, self.stop)):
            raise ConfigError(f"stop={self.stop!r:.100}: give {_STOPS[KIND][1]}")
        if self.neighbours is not None and not 0 <= self.neighbours <= MOST_NEIGHBOURS:
            raise ConfigError(f"neighbours={self.neighbours}: give 0 to {MOST_NEIGHBOURS}")


@dataclass(frozen=True, kw_only=True)
class AskedInConversation(Asked):
    """`history` and `collection` are the conversation's own."""

    # A question of it, whose place this one takes when its answer is stored; what stands behind goes with it.
    instead_of: int | None = field(default=None, metadata=_WHOLE)


def taking(
    options: Callable[Options, Asked],
) -> Callable[[Callable[Concatenate[Owner, First, ...], Result]], Callable[Concatenate[Owner, First, Options], Result]]:
    """Of a method that hands its `**options` on to `Asked`: type checkers know them as the fields of that."""

    def typed(
        method: Callable[Concatenate[Owner, First, ...], Result],
    ) -> Callable[Concatenate[Owner, First, Options], Result]:
        return method

    return typed
