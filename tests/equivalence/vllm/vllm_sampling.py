"""How an answer is sampled, and that it ends where it is enough: inside vLLM as on the torch engine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

from app.answering import Answer
from app.answering.pieces import Pieces
from app.answering.stream import AnswerStream
from ragcache.engine import TokenStream
from ragcache.engine.torch.sampler import _keep
from ragcache.errors import ConfigError
from ragcache.report import Report
from ragcache.sampling import Sampling
from ragcache.types import Segment
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain, free_blocks

SYSTEM, CHUNKS = make_system(), make_chunks(20, 15)
SEGMENTS: Sequence[Segment] = [SYSTEM, *CHUNKS, make_question()]
IDS = [token for segment in SEGMENTS for token in segment.ids]
LONG: Sequence[Segment] = [SYSTEM, *CHUNKS, make_question(400)]


@pytest.fixture(scope="module")
def pair(open_pair: OpenPair) -> Iterator[Pair]:
    with open_pair() as pair:
        list(pair.torch.ingest(SYSTEM, CHUNKS))
        yield pair


def answer(pair: Pair, sampling: Sampling) -> list[int]:
    return list(pair.vllm.generate(SEGMENTS, max_tokens=20, sampling=sampling))


@pytest.mark.parametrize("top_k", [1, 5, 40, 3000])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.93])
def test_the_torch_engine_draws_from_what_vllm_draws_from(top_k: int, top_p: float) -> None:
    logits = 2.0 * torch.randn(1, 3000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    kept = _keep(torch.softmax(logits[0], -1), Sampling(1.0, top_p, top_k))
    theirs = apply_top_k_top_p_pytorch(logits.clone(), torch.tensor([top_k]), torch.tensor([top_p]))[0]
    assert torch.equal(kept > 0, theirs > -math.inf)


def test_a_seed_gives_the_same_answer(pair: Pair) -> None:
    assert answer(pair, Sampling(2.0, seed=5)) == answer(pair, Sampling(2.0, seed=5))
    assert answer(pair, Sampling(2.0, seed=5)) != answer(pair, Sampling(2.0, seed=6))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(2.0, top_k=1, seed=5), Sampling(2.0, 1e-9, seed=5)])
def test_where_one_token_is_left_it_is_the_greedy_answer_of_torch(pair: Pair, sampling: Sampling) -> None:
    assert answer(pair, sampling) == list(pair.torch.generate(SEGMENTS, max_tokens=20))


def answers(pair: Pair, sampling: Sampling, count: int = 40) -> list[TokenStream]:
    """vLLM's and torch's, read to their ends."""
    streams = [cache.generate(SEGMENTS, max_tokens=count, sampling=sampling) for cache in (pair.vllm, pair.torch)]
    for stream in streams:
        assert list(stream) == stream.tokens
    return streams


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(frequency_penalty=1.5),
        Sampling(frequency_penalty=-0.5, presence_penalty=2.0),
        Sampling(presence_penalty=-2.0),
        Sampling(repetition_penalty=1.3),
        Sampling(repetition_penalty=0.8),
        Sampling(logit_bias={SEGMENTS[0].ids[0]: 4.0, 17: -100.0, 50: 6.0}),
        Sampling(
            frequency_penalty=0.7,
            presence_penalty=0.4,
            repetition_penalty=1.2,
            logit_bias={17: 5.0, 3: 7.5},
            logprobs=2,
        ),
        Sampling(2.0, top_k=1, seed=5, frequency_penalty=1.0, presence_penalty=1.0, logit_bias={17: 6.0}),
        Sampling(2.0, min_p=1.0, seed=5, repetition_penalty=1.2),
    ],
)
def test_penalties_and_biases_lead_to_the_answer_of_torch(pair: Pair, sampling: Sampling) -> None:
    ours, theirs = answers(pair, sampling)
    assert ours.tokens == theirs.tokens
    assert ours.tokens != list(pair.torch.generate(SEGMENTS, max_tokens=40))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(logprobs=5),
        Sampling(logprobs=20, frequency_penalty=1.0, logit_bias={17: 6.0}),
        Sampling(2.0, top_k=1, seed=5, logprobs=0),
        Sampling(logprobs=1, logit_bias={17: 100.0}),  # which is not the likeliest
    ],
)
def test_what_was_expected_of_each_token_is_that_of_torch(pair: Pair, sampling: Sampling) -> None:
    ours, theirs = answers(pair, sampling, 12)
    assert [told.token for told in ours.logprobs] == ours.tokens == theirs.tokens
    for told, other in zip(ours.logprobs, theirs.logprobs, strict=True):
        assert told.logprob == pytest.approx(other.logprob, abs=1e-3)
        assert [token for token, _ in told.top] == [token for token, _ in other.top]
        assert [one for _, one in told.top] == pytest.approx([one for _, one in other.top], abs=1e-3)
        assert len(told.top) == sampling.logprobs
    assert answers(pair, Sampling(), 2)[0].logprobs == []


def test_others_beside_it_do_not_change_what_is_told(pair: Pair) -> None:
    """vLLM computes as many as the one that wants most."""
    streams = [
        pair.vllm.generate(SEGMENTS, max_tokens=12, sampling=Sampling(logprobs=count)) for count in (0, 9, 3, None)
    ]
    for stream in streams:
        list(stream)
    assert [{len(told.top) for told in stream.logprobs} for stream in streams] == [{0}, {9}, {3}, set()]


def test_it_says_why_it_ended(pair: Pair) -> None:
    def start(stop: frozenset[int] = frozenset(), count: int = 12) -> TokenStream:
        made: TokenStream = pair.vllm.generate(SEGMENTS, max_tokens=count, stop=stop, sampling=Sampling(logprobs=1))
        return made

    full = start()
    assert full.finish_reason is None
    tokens = list(full)
    assert (len(tokens), full.finish_reason) == (12, "length")
    last = next(token for place, token in enumerate(tokens) if place > 2 and token not in tokens[:place])
    stopped = start(frozenset([last]))
    assert (list(stopped), stopped.finish_reason) == (tokens[: tokens.index(last)], "stop")
    assert [told.token for told in stopped.logprobs] == stopped.tokens, "nothing of the one that stopped it"
    enough = start(count=400)
    for _ in enough:
        enough.enough()
    assert enough.finish_reason == "stop"
    left = start(count=400)
    next(iter(left))
    assert left.finish_reason is None
    left.close()
    assert left.finish_reason == "cancelled"
    cancelled = start(count=400)
    next(iter(cancelled))
    cancelled.cancel()
    list(cancelled)
    assert cancelled.finish_reason == "cancelled"


def test_a_bias_of_what_is_no_token_is_refused(pair: Pair) -> None:
    with pytest.raises(ConfigError, match=r"^logit_bias names token 199"):
        answer(pair, Sampling(logit_bias={199: 1.0}))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(0.5, 0.75, 7, 2**63 - 1),
        Sampling(0.5),
        Sampling(0.5, seed=0),
        Sampling(0.5, 0.9, 3, 4, 0.1, 0.2, 0.3, 1.4, {5: 1.5}, 3),
    ],
)
def test_it_reaches_vllm_as_it_is(pair: Pair, monkeypatch: pytest.MonkeyPatch, sampling: Sampling) -> None:
    told, submit = list[SamplingParams](), type(pair.engine).submit

    def watched(engine: Any, ids: Sequence[int], params: SamplingParams, deliver: Any, salt: str | None) -> str:
        told.append(params)
        assert salt is None, "that is for what is measured"
        return str(submit(engine, ids, params, deliver))

    monkeypatch.setattr(type(pair.engine), "submit", watched)
    list(pair.vllm.generate(SEGMENTS, max_tokens=2, sampling=sampling))
    names = [field.name for field in fields(Sampling)]
    found = [{name: getattr(one, name) for name in names} for one in told]
    assert [Sampling(**{**one, "logit_bias": one["logit_bias"] or {}}) for one in found] == [sampling]


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
    monkeypatch.setattr(pair.vllm, "_finish", lambda segments, era, report: finished.append(report.answer_tokens))
    stream = pair.vllm.generate(SEGMENTS, max_tokens=400)
    for _ in stream:
        stream.enough()
    assert finished == [1]


def test_an_answer_ends_before_a_text(pair: Pair) -> None:
    """vLLM computes no more of it, and all of the rest is as with torch."""

    def finish(text: str, whole: bool) -> Answer:
        return Answer("", text, (), Report("", 0, 0, 0), () if whole else ("cut",))

    def letters(ids: Sequence[int]) -> str:
        return "".join(chr(0x4E00 + one) for one in ids)

    tokens = list(pair.torch.generate(SEGMENTS, max_tokens=12))
    drain(pair.engine)
    before = free_blocks(pair.engine)
    stop = letters(tokens[5:7])
    for cache in (pair.vllm, pair.torch):
        generation = cache.generate(SEGMENTS, max_tokens=400, sampling=Sampling(logprobs=1))
        stream = AnswerStream(generation, Pieces(letters, [stop]), (), finish)
        assert "".join(stream) == letters(tokens).partition(stop)[0]
        assert (stream.finish_reason, stream.answer.notes) == ("stop", ())
        taken = stream.take_tokens()
        assert [one.token for one in taken] == tokens[: len(stream.text)]
        assert [one.told.token for one in taken if one.told] == tokens[: len(stream.text)]
        assert (stream.usage.prompt, stream.usage.answer) == (len(IDS), len(taken) + 2)
    drain(pair.engine)
    assert free_blocks(pair.engine) == before


def test_a_prompt_that_is_asked_again_is_not_computed_again(pair: Pair) -> None:
    """As for several answers to one question: all but its last block, which samples."""
    pair.engine.forget_prefixes()
    reports = []
    for seed in range(3):
        stream = pair.vllm.generate(LONG, max_tokens=4, sampling=Sampling(1.0, seed=seed))
        list(stream)
        reports.append(stream.report)
    count = reports[0].prompt_tokens
    assert [report.prefix_tokens > count - 128 for report in reports] == [False, True, True]
    assert all(count - 128 < report.cached < count for report in reports[1:])
