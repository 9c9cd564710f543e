"""vLLM led along a given answer: what it samples is overruled, the distributions that it reports are its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from vllm.platforms import current_platform
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

FORCED = "ragcache_forced"  # in a request's extra arguments: the ids of its answer


class Forcing(AdapterLogitsProcessor):  # type: ignore[misc]  # vLLM's types are Any where it is not installed
    """Runs on the logits that the token is sampled from, after `logprobs_mode="raw_logprobs"` has taken its copy."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Callable[[Sequence[int], torch.Tensor], torch.Tensor] | None:
        ids = (params.extra_args or {}).get(FORCED)
        return None if ids is None else partial(_force, ids)


def _force(ids: Sequence[int], so_far: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
    """Leave one choice: the answer's next token. logits [vocabulary], written to."""
    logits.fill_(-torch.inf)
    logits[ids[len(so_far)]] = 0.0
    return logits


def engine_options() -> dict[str, Any]:
    """Engine arguments for full distributions and forced answers. CUDA's model runner can replay a trace by itself;
    that of the CPU refuses one.
    """
    whole = {"max_logprobs": -1, "logprobs_mode": "raw_logprobs"}
    if current_platform.is_cpu():
        return whole | {"logits_processors": [Forcing]}
    return whole | {"enable_trace_replay": True}


def forced(ids: Sequence[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Extra arguments and sampling settings of a request whose answer is to be `ids`."""
    if current_platform.is_cpu():
        return {FORCED: list(ids)}, {}
    return {}, {"trace_decode_token_ids": list(ids)}
