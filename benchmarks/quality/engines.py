"""The engines that prompts are answered by: vLLM is not everywhere, so it is imported for a model in it alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.models.loading import LoadedModel, TorchModel, load_torch_model
from app.settings import Settings
from benchmarks.quality.answering import AnsweringEngine
from benchmarks.quality.torch import TorchAnswering


def open_answering(parts: LoadedModel, context: str, max_tokens: int) -> AnsweringEngine:
    """Over an empty cache. `context`: what its chunks are computed behind; `max_tokens`: of the longest answer."""
    if isinstance(parts, TorchModel):
        return TorchAnswering(parts, context, max_tokens)
    from benchmarks.quality.vllm import VllmAnswering

    return VllmAnswering(parts, context, max_tokens)


@contextmanager
def open_parts(settings: Settings) -> Iterator[LoadedModel]:
    """The engine of the settings, able to be led along an answer."""
    if settings.engine != "vllm":
        yield load_torch_model(settings)
        return
    from benchmarks.quality.forcing import engine_options
    from benchmarks.vllm_model import open_vllm

    with open_vllm(settings, **engine_options()) as parts:
        yield parts
