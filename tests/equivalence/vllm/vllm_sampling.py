"""How an answer is sampled, and that it ends where it is enough: inside vLLM as on the torch engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from vllm import SamplingParams

from ragcache.errors import ConfigError
from ragcache.sampling import Sampling
from ragcache.types import Segment
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain, free_blocks

SYSTEM, CHUNKS = make_system(), make_chunks(20, 15)
SEGMENTS: Sequence[Segment] = [SYSTEM, *CHUNKS, make_question()]


@pytest.fixture(scope="module")
def pair(open_pair: OpenPair) -> Iterator[Pair]:
    with open_pair() as pair:
        list(pair.torch.ingest(SYSTEM, CHUNKS))
        yield pair


def answer(pair: Pair, sampling: Sampling) -> list[int]:
    return list(pair.vllm.generate(SEGMENTS, max_tokens=20, sampling=sampling))


def test_a_seed_gives_the_same_answer(pair: Pair) -> None:
    assert answer(pair, Sampling(2.0, seed=5)) == answer(pair, Sampling(2.0, seed=5))
    assert answer(pair, Sampling(2.0, seed=5)) != answer(pair, Sampling(2.0, seed=6))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(2.0, top_k=1, seed=5), Sampling(2.0, 1e-9, seed=5)])
def test_where_one_token_is_left_it_is_the_greedy_answer_of_torch(pair: Pair, sampling: Sampling) -> None:
    assert answer(pair, sampling) == list(pair.torch.generate(SEGMENTS, max_tokens=20))


@pytest.mark.parametrize("sampling", [Sampling(0.5, 0.75, 7, 2**63 - 1), Sampling(0.5), Sampling(0.5, seed=0)])
def test_it_reaches_vllm_as_it_is(pair: Pair, monkeypatch: pytest.MonkeyPatch, sampling: Sampling) -> None:
    told, submit = list[SamplingParams](), type(pair.engine).submit

    def watched(engine: Any, ids: Sequence[int], params: SamplingParams, deliver: Any) -> str:
        told.append(params)
        return str(submit(engine, ids, params, deliver))

    monkeypatch.setattr(type(pair.engine), "submit", watched)
    list(pair.vllm.generate(SEGMENTS, max_tokens=2, sampling=sampling))
    assert [Sampling(one.temperature, one.top_p, one.top_k, one.seed) for one in told] == [sampling]


def test_what_vllm_does_not_take_is_told(pair: Pair) -> None:
    with pytest.raises(ConfigError, match=r"^vLLM refuses this sampling: temperature must be in \[0, 2\], got 2.5"):
        answer(pair, Sampling(2.5))
    assert answer(pair, Sampling())


def test_it_ends_where_it_is_enough(pair: Pair) -> None:
    """vLLM computes no more of it, and its report is whole."""
    expected = list(pair.torch.generate(SEGMENTS, max_tokens=5))
    drain(pair.engine)
    before, tokens = free_blocks(pair.engine), list[int]()
    stream = pair.vllm.generate(SEGMENTS, max_tokens=400)
    for token in stream:
        tokens.append(token)
        if len(tokens) == 5:
            stream.enough()
    assert tokens == stream.tokens == expected
    assert (stream.report.answer_tokens, stream.report.reused) == (5, 35)
    assert stream.report.decode_s > 0
    assert pair.engine._ask(lambda: len(pair.engine._deliver)) == 0
    drain(pair.engine)
    assert free_blocks(pair.engine) == before


def test_what_it_lacked_is_kept_where_it_was_enough(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[int] = []
    monkeypatch.setattr(pair.vllm, "keep_missed", True)
    monkeypatch.setattr(pair.vllm, "_finish", lambda segments, report: finished.append(report.answer_tokens))
    stream = pair.vllm.generate(SEGMENTS, max_tokens=400)
    for _ in stream:
        stream.enough()
    assert finished == [1]
