"""vLLM that links, in this process or in a server of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from ragcache.engine import LinkSource, PromptRequest
from ragcache.engine.vllm.generation import VllmGeneration
from ragcache.engine.vllm.requests import check_linker
from ragcache.engine.vllm.submission import SubmittingVllm
from ragcache.errors import ConfigError
from ragcache.linking import linker_spec, make_linker
from ragcache.linking.base import Linker
from ragcache.planning import check_segments
from ragcache.report import Report
from ragcache.types import Chunk, Segment, System, Variant


class LinkingVllm(SubmittingVllm):
    """Answers are requests of vLLM's, over linked caches."""

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

    @abstractmethod
    def close(self) -> None:
        """Ends what runs; safe to call twice."""


def segments_of(before: Sequence[Variant], segment: Segment) -> list[Segment]:
    """Of what is captured behind these."""
    return [*((Chunk if place else System)(one.ids, one.key.border) for place, one in enumerate(before)), segment]
