"""Requests to vLLM, whatever they are for: how they begin, and who reads what comes of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ragcache.engine import Engine
from ragcache.sampling import MOST_LOGPROBS

# Takes one output of a request, as vLLM's RequestOutput has it, or when the engine broke the error that it broke with,
# or None; it must not block.
Deliver = Callable[[Any], None]


class SubmittingVllm(Engine):
    """Takes requests, and delivers their outputs."""

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
