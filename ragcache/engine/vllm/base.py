"""vLLM that links, in this process or in a server of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ragcache.engine import Engine, LinkSource, PromptRequest
from ragcache.engine.vllm.generation import VllmGeneration
from ragcache.engine.vllm.requests import check_linker
from ragcache.errors import ConfigError
from ragcache.linking import linker_spec, make_linker
from ragcache.linking.base import Linker
from ragcache.planning import check_segments
from ragcache.report import Report
from ragcache.sampling import MOST_LOGPROBS
from ragcache.types import Chunk, Segment, System, Variant

# Takes one output of a request, as vLLM's RequestOutput has it, or when the engine broke the error that it broke with,
# or None; it must not block.
Deliver = Callable[[Any], None]


class LinkingVllm(Engine):
    """Answers are requests of vLLM's."""

    most_logprobs = MOST_LOGPROBS  # that are told of each token of a prompt that is measured

    def __init__(self) -> None:
        self._reading: dict[object, None] = {}

    @property
    def answers(self) -> bool:
        return bool(self._reading)

    def reading(self) -> Callable[[], object]:
        """Somebody reads an answer until what is returned is called, by any thread and however often."""
        self._reading[one := object()] = None
        return lambda: self._reading.pop(one, None)

    def answer(
        self, prompt: PromptRequest, source: LinkSource, finish: Callable[[Report], None] | None
    ) -> VllmGeneration:
        """Returns at once: vLLM computes meanwhile."""
        if source.loader is not None or source.rates is not None:
            raise ConfigError("vLLM's workers load and learn by themselves: give no loader and no rates")
        check_segments(prompt.segments)  # inside vLLM a malformed one could only be answered without its caches
        return VllmGeneration(self, prompt, source, finish)

    def check_linker(self, linker: Linker) -> None:
        named = make_linker(linker_spec(linker))  # as its request will name it
        if check_linker(named) != linker:
            raise ConfigError(f"linker {linker!r} is not the registry's {named.name!r}: vLLM knows those alone")

    def came(self, planned: float, seconds: float) -> None:
        """A first token: when it was planned, and when it came, for an engine that learns how far its plans are off."""

    @abstractmethod
    def sampling(self, max_tokens: int, extra: dict[str, Any] | None = None, **settings: Any) -> Any:
        """By vLLM's names. Raises ConfigError for what vLLM does not take, such as a temperature above 2."""

    @abstractmethod
    def submit(self, ids: Sequence[int], params: Any, deliver: Deliver, salt: str | None = None) -> str:
        """Start a request -> its name. `salt`: vLLM's prefix cache has what it computes for those alone who give the
        same. Raises PromptError for what cannot be served; vLLM may refuse later.
        """

    @abstractmethod
    def abort(self, request: str) -> dict[str, Any]:
        """End a request that nobody reads any more -> what its response would have carried, if that is known."""

    @abstractmethod
    def forsake(self, request: str, tell: Callable[[dict[str, Any]], None] = lambda told: None) -> dict[str, Any]:
        """The same without waiting, for finalisers: Python runs them on any thread, whatever locks it holds. `tell`
        hears it later.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends what runs; safe to call twice."""


def segments_of(before: Sequence[Variant], segment: Segment) -> list[Segment]:
    """Of what is captured behind these."""
    return [*((Chunk if place else System)(one.ids, one.key.border) for place, one in enumerate(before)), segment]
