"""Requests of vLLM's in this process, and what comes of them; nothing of the application is needed."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ragcache.engine.vllm.requests import link_params
from ragcache.errors import ModelError
from ragcache.types import Segment

if TYPE_CHECKING:  # vLLM is not everywhere
    from ragcache.engine.vllm.engine import VllmEngine


def outputs(engine: VllmEngine, ids: Sequence[int], params: Any) -> Iterator[Any]:
    """vLLM's outputs of one request as they come, the last one with its report."""
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine.submit(ids, params, received.put)
    while True:
        output = received.get()
        if output is None:
            raise ModelError("the vLLM engine broke during an answer: see the log for why")
        yield output
        if output.finished:
            return


def distributions(
    engine: VllmEngine,
    segments: Sequence[Segment],
    linker: str,
    max_tokens: int,
    extra: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[tuple[int, ...], torch.Tensor]:
    """An answer's tokens, the end among them, and each step's log-probabilities [steps, vocabulary]."""
    extra = {"kv_transfer_params": link_params(segments, linker), **(extra or {})}
    params = engine.sampling(max_tokens, extra, logprobs=-1, flat_logprobs=True, **settings)
    ids: list[int] = []
    rows: list[torch.Tensor] = []
    for output in outputs(engine, [token for segment in segments for token in segment.ids], params):
        completion = output.outputs[0]
        ids += completion.token_ids
        rows += _rows(completion.logprobs, engine.spec.vocabulary)
    return tuple(ids), torch.stack(rows)


def _rows(flat: Any, vocabulary: int) -> list[torch.Tensor]:
    """From vLLM's FlatLogprobs, which has each token with its log-probability, the sampled one twice."""
    rows = []
    for start, end in zip(flat.start_indices, flat.end_indices, strict=True):
        row = torch.full((vocabulary,), torch.nan)
        row[torch.tensor(flat.token_ids[start:end])] = torch.tensor(flat.logprobs[start:end])
        assert not row.isnan().any(), "vLLM left tokens out: it was started without max_logprobs=-1"
        rows.append(row)
    return rows
