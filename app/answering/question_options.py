"""What is asked of a pipeline, and whether it can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, SupportsIndex, TypedDict, get_args

from app.settings import MOST_NEIGHBOURS, PromptOrder, RetrievalMode
from ragcache.errors import ConfigError
from ragcache.sampling import Sampling
from ragcache.together import Together

if TYPE_CHECKING:
    from app.prompt import Turn

Where = Mapping[str, Sequence[int | str]]


class AskOptions(TypedDict, total=False):
    """For callers; each is explained at Asked."""

    collection: str | None
    collection_id: int | None
    top_k: int | None
    top_tokens: int | None
    neighbours: int | None
    prompt_order: PromptOrder | None
    retrieval: RetrievalMode | None
    mmr: float | None
    where: Where | None
    max_tokens: int | None
    linker: str | None
    sampling: Sampling | None
    history: Sequence[Turn]
    quotes: bool
    stop: Sequence[str]
    system: str | None
    system_owner: str
    border: str
    together: Together | None


MOST_STOPS, LONGEST_STOP = 4, 256  # as OpenAI has it; and what may be a beginning is held back
_WHOLE = (SupportsIndex, "a whole number")
_TEXT = (str, "a text")
_KINDS: Mapping[str, tuple[type, str]] = {  # of Asked
    **dict.fromkeys(("collection_id", "top_k", "top_tokens", "neighbours", "max_tokens"), _WHOLE),
    **dict.fromkeys(("collection", "linker", "system", "system_owner", "border"), _TEXT),
    "mmr": (Real, "a number from 0 to 1"),
    "where": (Mapping, "lists of values by document, source or kind"),
    "history": (Sequence, "pairs of a question and its answer"),
    "quotes": (bool, "True or False"),
    "sampling": (Sampling, "a Sampling of ragcache"),
    "together": (Together, "a Together of ragcache"),
    "stop": (Sequence, f"up to {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters"),
}


def _is_turn(value: object) -> bool:
    """A text of two characters is no pair of texts."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return len(value) == 2 and all(isinstance(one, str) for one in value)


def _is_stop(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_STOP


@dataclass(frozen=True)
class Asked:
    """What is None is as in the settings. An unknown name raises TypeError."""

    collection: str | None = None
    collection_id: int | None = None  # in place of its name: that one, whatever it is called by now
    top_k: int | None = None
    top_tokens: int | None = None  # of all chunks together; 0 sets no budget
    neighbours: int | None = None  # on each side of a hit; 16 at most
    # "cached" is as what is cached fits best; "best" is best first, where it fits least.
    prompt_order: PromptOrder | None = None
    retrieval: RetrievalMode | None = None  # by meaning ("vector"), by words ("keyword"), or both
    mmr: float | None = None  # share of relevance against novelty; 1 looks at relevance alone
    where: Where | None = None  # {"document": ids or sources, "source": …, "kind": …}: only chunks of these
    max_tokens: int | None = None
    linker: str | None = None  # "full" uses no cache
    sampling: Sampling | None = None  # all of it; Sampling() is greedy
    history: Sequence[Turn] = ()  # earlier questions with their answers; a Conversation keeps its own
    quotes: bool = True  # whether each citation shall name its best sentence
    stop: Sequence[str] = ()  # texts, before the first of which the answer ends

    system: str | None = None  # the system prompt, in place of the application's
    system_owner: str = ""  # nobody but him is served by its KV: what is captured stands behind the application's
    border: str = ""  # whose KV may serve it: see Segment of ragcache
    together: Together | None = None  # with other answers to it, whose prompt the torch engine computes once

    def __post_init__(self) -> None:
        for name, (kind, wanted) in _KINDS.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
                raise ConfigError(f"{name}={value!r}: give {wanted}")
        if any(isinstance(values, str) or not isinstance(values, Collection) for values in (self.where or {}).values()):
            raise ConfigError(f"where={self.where!r}: give {_KINDS['where'][1]}")
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
            raise ConfigError(f"mmr={self.mmr}: give {_KINDS['mmr'][1]}")
        if isinstance(self.history, str) or not all(map(_is_turn, self.history)):
            raise ConfigError(f"history={self.history!r:.100}: give {_KINDS['history'][1]}")
        if isinstance(self.stop, str) or len(self.stop) > MOST_STOPS or not all(map(_is_stop, self.stop)):
            raise ConfigError(f"stop={self.stop!r:.100}: give {_KINDS['stop'][1]}")
        if self.neighbours is not None and not 0 <= self.neighbours <= MOST_NEIGHBOURS:
            raise ConfigError(f"neighbours={self.neighbours}: give 0 to {MOST_NEIGHBOURS}")
