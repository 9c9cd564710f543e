"""What a vLLM server says of an answer, in the form of vLLM's own engine. Nothing is believed: a proxy before it, or
another version, may leave out what was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragcache.errors import ModelError

TOKEN = "token_id:"  # how a token is named among logprobs


@dataclass(frozen=True)
class ServedLogprob:
    rank: int
    logprob: float


@dataclass(frozen=True)
class ServedPiece:
    token_ids: Sequence[int] = ()
    logprobs: Sequence[Mapping[int, ServedLogprob]] = ()
    finish_reason: str | None = None


@dataclass(frozen=True)
class ServedOutput:
    """As vLLM's own engine hands one out."""

    outputs: tuple[ServedPiece]
    finished: bool = False
    kv_transfer_params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AskedAnswer:
    """What an answer may hold."""

    vocabulary: int
    max_tokens: int
    logprobs: bool = False  # are asked for

    def pieces(self, events: Iterable[dict[str, Any]]) -> Iterator[ServedPiece]:
        """Those that tell something. Raises ModelError for what is no answer to what was asked."""
        left = self.max_tokens
        for event in events:
            choices = event.get("choices")
            if choices == [] and event.get("error") is None:
                continue  # tells the usage, as some servers always do
            choice = next(iter(choices), None) if isinstance(choices, list) else None
            if not isinstance(choice, dict):
                raise ModelError(f"the vLLM server tells of an error amid an answer: {str(event.get('error'))[:300]}")
            piece = self._piece(choice)
            left -= len(piece.token_ids)
            if left < 0:
                raise ModelError(f"the vLLM server answers with more than the {self.max_tokens} tokens that were asked")
            if piece.token_ids or piece.finish_reason:
                yield piece

    def _piece(self, choice: dict[str, Any]) -> ServedPiece:
        ids, reason, text = choice.get("token_ids"), choice.get("finish_reason"), choice.get("text")
        if not isinstance(ids, list) or (text and not ids):
            raise ModelError(
                "the vLLM server answers without the ids of its tokens: it, and what stands before it, must know "
                "`return_token_ids` (docs/vllm.md)"
            )
        if not all(type(token) is int and 0 <= token < self.vocabulary for token in ids):
            raise ModelError(f"the vLLM server answers with {str(ids)[:80]}: its model has {self.vocabulary} tokens")
        if not isinstance(reason, str | None):
            raise ModelError(f"the vLLM server ends an answer for the reason {str(reason)[:80]}")
        return ServedPiece(ids, _logprobs(choice.get("logprobs"), ids) if self.logprobs and ids else (), reason)


def _logprobs(told: object, ids: list[int]) -> list[dict[int, ServedLogprob]]:
    """For each token itself and the likeliest, in their order."""
    try:
        assert isinstance(told, dict)
        rows = zip(ids, told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True)
        return [_row(token, {name: logprob} | (top or {})) for token, name, logprob, top in rows]
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"the vLLM server does not tell the logprobs of {len(ids)} tokens as it was asked") from error


def _row(token: int, known: dict[str, float]) -> dict[int, ServedLogprob]:
    assert all(map(math.isfinite, known.values()))
    ordered = sorted(known, key=lambda one: -known[one])
    row = {int(one.removeprefix(TOKEN)): ServedLogprob(rank, known[one]) for rank, one in enumerate(ordered, start=1)}
    assert token in row
    return row
