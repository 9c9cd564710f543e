"""What every engine offers, so that one cache serves with each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from ragcache.address import address_of
from ragcache.errors import ConfigError, ModelError, PromptError
from ragcache.keeping import Pause, until_end
from ragcache.linking.base import Linker
from ragcache.loader import Loader
from ragcache.planning import Plan, plan_prompt
from ragcache.policy import Rates
from ragcache.prefix_keeping import Prefixes
from ragcache.report import Report
from ragcache.sampling import FinishReason, Sampling, TokenLogprobs
from ragcache.store.base import NO_ERA, KVStore
from ragcache.store.findings import Fetched
from ragcache.together import Together
from ragcache.types import KVForm, Segment, System, Variant, VariantKey, check_ids


@dataclass(frozen=True)
class EngineSpec:
    """What others need to know of an engine."""

    fingerprint: str
    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    max_tokens: int
    vocabulary: int
    eos: frozenset[int]

    @property
    def form(self) -> KVForm:
        return KVForm(self.layers, self.kv_heads, self.head_dim)

    @property
    def token_bytes(self) -> int:
        """KV of one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


def end_tokens(told: object) -> frozenset[int]:
    """Of an eos_token_id as the files of models have it: an id, several, or null. Raises ModelError."""
    found = [] if told is None else told if isinstance(told, list | tuple) else [told]
    if not all(type(token) is int for token in found):
        raise ModelError(
            f"eos_token_id={told!r:.100} is no token id and no list of some: mend the model's config.json or "
            "generation_config.json"
        )
    return frozenset(found)


class TokenStream(ABC):
    """An iterator over an answer's tokens, once. `report` is complete when it ends; `tokens` are those so far, and
    `logprobs` what is told of each, if the sampling asks for it. A token that stops the answer is none of them.

    One thread reads it. Reading raises ModelError when the engine breaks meanwhile.
    """

    report: Report
    tokens: list[int]
    logprobs: list[TokenLogprobs]
    ending: TokenLogprobs | None = None  # what is told of the token that stopped it, by engines that do
    finish_reason: FinishReason | None = None  # None before the end; what is enough has stopped
    _is_enough = False

    @abstractmethod
    def __iter__(self) -> Iterator[int]: ...

    @abstractmethod
    def cancel(self) -> None:
        """From any thread: end the answer here for whoever waits for its next token. Does not wait itself."""

    def enough(self) -> None:
        """From the thread that reads: the answer is whole as it is, and whoever reads on finds its end."""
        self._is_enough = True

    @abstractmethod
    def close(self) -> None:
        """End the answer here and free its prompt's KV; nothing happens when it has ended."""


@dataclass(frozen=True)
class PromptRequest:
    """What is asked of an engine."""

    segments: Sequence[Segment]
    linker: Linker
    max_tokens: int  # of the answer
    sampling: Sampling = field(default_factory=Sampling)
    stop: frozenset[int] = frozenset()
    era: int = NO_ERA  # of the store when it came: nothing is kept for it when that has ended
    # It is measured: all that is cached of it is linked, however soon, and no prefix cache of the engine's serves it.
    apart: bool = False
    together: Together | None = None  # with other answers to it


@dataclass(frozen=True)
class LinkSource:
    """Where cached KV comes from for a prompt, and who waits for its answer."""

    store: KVStore
    # Computed and stored where there is none. What went wrong joins the list, unless it is told by now that the stored
    # one cannot be read. No method of the cache: whoever held the cache would hold itself.
    system: Callable[[System, list[str], bool], Fetched]
    begin_answering: Callable[[], Callable[[], None]]  # somebody waits until what is returned is called
    loader: Loader | None = None  # in place of the engine's own
    rates: Rates | None = None  # learn from every prompt what is sooner; without, whatever is cached is linked
    prefixes: Prefixes | None = None  # kept by an engine that has no prefix cache of its own

    def answering(self) -> AbstractContextManager[None]:
        """While somebody waits for what is computed inside."""
        return until_end(self.begin_answering)


@dataclass(frozen=True)
class Forecast:
    """Of a prompt, as it would be answered now."""

    plan: Plan
    rates: Rates | None = None  # by which it was judged; they learn nothing of it
    plain_s: float | None = None  # to the first token of a prefill without cache


class Engine(ABC):
    """Holds the weights of one model. Threads may share it."""

    name: ClassVar[str]
    spec: EngineSpec

    def capture(self, before: Sequence[Variant], segment: Segment, pause: Pause | None = None) -> Variant:
        """KV and profile of `segment` behind the variants `before`, whose KV is taken as it is stored: nothing for the
        System segment, else System and context chunks. Where some of that KV has lost something, so has what is behind.
        `pause` is called amid the computation, if it can wait.

        Raises PromptError when they are not that, do not fit the model's context, or hold what is no token of it.
        """
        if not len(segment):
            kind = type(segment).__name__.lower()
            raise PromptError(f"an empty {kind} has no KV: " + ("drop it when splitting" if before else "give it text"))
        for ids in (*(variant.ids for variant in before), segment.ids):
            self.check_tokens(ids)
        key = address_of(self.spec.fingerprint, [(variant.key, variant.ids) for variant in before], segment)
        return self._capture(before, segment, key, pause)

    @abstractmethod
    def _capture(self, before: Sequence[Variant], segment: Segment, key: VariantKey, pause: Pause | None) -> Variant:
        """Compute what `capture` has checked. Raises PromptError when it does not fit the model's context."""

    @abstractmethod
    def answer(self, prompt: PromptRequest, source: LinkSource, finish: Callable[[Report], None] | None) -> TokenStream:
        """Begin an answer; `finish` is given its report after the last token.

        Raises PromptError for a prompt that is malformed or too long.
        """

    @property
    def answers(self) -> bool:
        """Whether it computes answers beside one another, and somebody reads one now."""
        return False

    def forecast(self, prompt: PromptRequest, source: LinkSource) -> Forecast:
        """Nothing is read but headers, and nothing computed. By an engine that foretells no times: what is cached."""
        lookup = not prompt.linker.recompute_all
        return Forecast(plan_prompt(prompt.segments, self.spec.fingerprint, source.store, lookup=lookup))

    @abstractmethod
    def check_linker(self, linker: Linker) -> None:
        """Raises ConfigError for one that this engine cannot serve."""

    def check_sampling(self, sampling: Sampling) -> None:
        """Raises ConfigError for one that names what is no token of this model."""
        for token in dict(sampling.logit_bias):
            if token >= self.spec.vocabulary:
                raise ConfigError(
                    f"logit_bias names token {token}, and the model's vocabulary has {self.spec.vocabulary}: use the "
                    "model's own tokenizer"
                )

    def check_tokens(self, ids: Sequence[int]) -> None:
        """Raises PromptError for what is no token of this model, and for no tokens at all."""
        if not len(ids):
            raise PromptError("there are no tokens: give at least one")
        check_ids(ids)
        for token in (min(ids), max(ids)):
            if not 0 <= token < self.spec.vocabulary:
                raise PromptError(
                    f"token {token} is not in the model's vocabulary of {self.spec.vocabulary}: use the model's own "
                    "tokenizer"
                )

    def check_length(self, tokens: int) -> None:
        """Raises PromptError for a prompt that, with its answer, is longer than the model's context."""
        if tokens > self.spec.max_tokens:
            raise PromptError(
                f"prompt and answer need {tokens} tokens, the model's context has {self.spec.max_tokens}: "
                "retrieve fewer or smaller chunks, or ask for a shorter answer"
            )
