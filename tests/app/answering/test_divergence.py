"""How far apart two answers are by what an engine tells of its likeliest tokens."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.answering.divergence import likely_divergence
from ragcache.engine.torch.forcing import kl_by_step
from ragcache.sampling import TokenLogprobs

WORDS = 12


def told(logits: torch.Tensor, most: int) -> TokenLogprobs:
    logprobs, ids = torch.log_softmax(logits, -1).topk(most)
    return TokenLogprobs(int(ids[0]), float(logprobs[0]), tuple(zip(ids.tolist(), logprobs.tolist(), strict=True)))


def divergences(full: list[float], linked: list[float], most: int) -> tuple[float, float]:
    """By the likeliest, and by all."""
    one, other = (torch.tensor(logits, dtype=torch.float64) for logits in (full, linked))
    return likely_divergence(told(one, most), told(other, most)), float(kl_by_step(one[None], other[None])[0])


LOGITS = st.lists(st.floats(-8, 8), min_size=WORDS, max_size=WORDS)


@given(LOGITS, LOGITS, st.integers(1, WORDS))
def test_it_is_never_more_than_that_of_all_tokens(full: list[float], linked: list[float], most: int) -> None:
    ours, theirs = divergences(full, linked, most)
    assert -1e-9 <= ours <= theirs + 1e-6


@given(LOGITS, LOGITS)
def test_where_all_are_told_it_is_the_same(full: list[float], linked: list[float]) -> None:
    ours, theirs = divergences(full, linked, WORDS)
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_answers_that_share_no_likely_token_are_far_apart() -> None:
    """Though what each tells says nothing of the other's tokens."""
    full, linked = [9.0, 8.0, *[0.0] * 10], [*[0.0] * 10, 8.0, 9.0]
    ours, theirs = divergences(full, linked, 2)
    assert theirs > ours > 0.1
    ours, theirs = divergences(full, linked, 3)
    assert theirs >= ours > 8


def test_no_number_is_none() -> None:
    nothing = TokenLogprobs(0, math.nan, ((0, math.nan),))
    assert math.isnan(likely_divergence(nothing, TokenLogprobs(0, 0.0, ((0, 0.0),))))
    assert math.isnan(likely_divergence(TokenLogprobs(0, 0.0, ((0, 0.0),)), nothing))
