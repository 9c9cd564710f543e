"""Decoding: against transformers' own, one token at a time, to the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from ragcache.cache import ChunkCache
from ragcache.engine.torch.decoder import Decoder
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ConfigError
from ragcache.sampling import Sampling
from ragcache.store import open_store
from ragcache.types import Segment
from tests.tiny import Tiny, make_chunks, make_config, make_model, make_question, make_system, stock

SEGMENTS: Sequence[Segment] = [make_system(), *make_chunks(20, 15), make_question()]
IDS = [token for segment in SEGMENTS for token in segment.ids]


def make_cache(engine: TorchEngine) -> ChunkCache:
    return ChunkCache(engine, open_store(codec="raw"), "naive", keep_missed=False)


@pytest.fixture
def cache(tiny: Tiny) -> ChunkCache:
    return make_cache(tiny.engine)


def expected_answer(tiny: Tiny, count: int, **settings: float) -> list[int]:
    out = tiny.model.generate(torch.tensor([IDS]), max_new_tokens=count, do_sample=False, **settings)
    return [int(token) for token in out[0, len(IDS) :]]


def test_greedy_answers_are_those_of_transformers(every_tiny: Tiny) -> None:
    answer = make_cache(every_tiny.engine).generate(SEGMENTS, max_tokens=20)
    assert list(answer) == expected_answer(every_tiny, 20)


def test_it_stops_after_as_many_tokens_as_were_asked_for(cache: ChunkCache) -> None:
    for count in (1, 2, 7):
        answer = cache.generate(SEGMENTS, max_tokens=count)
        assert len(list(answer)) == count
        assert answer.report.answer_tokens == count
    assert list(answer) == [], "a stream is read once"


def test_it_stops_before_a_token_that_ends_an_answer(tiny: Tiny) -> None:
    tokens = expected_answer(tiny, 12)
    last = next(token for place, token in enumerate(tokens) if place > 2 and token not in tokens[:place])
    expected = tokens[: tokens.index(last)]
    model = make_model(make_config(eos_token_id=[198, last]))
    answer = make_cache(TorchEngine.from_model(model)).generate(SEGMENTS, max_tokens=12)
    assert list(answer) == answer.tokens == expected
    assert answer.report.answer_tokens == len(expected)

    stopped = make_cache(tiny.engine).generate(SEGMENTS, max_tokens=12, stop=frozenset([last]))
    assert list(stopped) == expected


def test_it_ends_where_it_is_enough(tiny: Tiny) -> None:
    """As one that has as many tokens as were asked for: with its report, and what it lacked is kept."""
    cache = ChunkCache(tiny.engine, open_store(codec="raw"), "naive")
    list(cache.ingest(SEGMENTS[0], []))
    answer, tokens = cache.generate(SEGMENTS, max_tokens=20), list[int]()
    for token in answer:
        tokens.append(token)
        if len(tokens) == 5:
            answer.enough()
    assert tokens == answer.tokens == expected_answer(tiny, 5)
    assert answer.report.answer_tokens == 5
    assert all(chunk.tier == "computed" for chunk in answer.report.chunks)
    assert all(chunk.tier == "ram" for chunk in cache.generate(SEGMENTS, max_tokens=1).report.chunks)


def test_an_answer_may_be_empty(tiny: Tiny, cache: ChunkCache) -> None:
    (first,) = expected_answer(tiny, 1)
    answer = cache.generate(SEGMENTS, stop=frozenset([first]))
    assert list(answer) == []
    assert answer.report.answer_tokens == 0


def test_tokens_come_as_they_are_computed(cache: ChunkCache, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    original = Decoder.forward

    def counting(self: Decoder, hidden: torch.Tensor, *args: object) -> torch.Tensor:
        passes.append(len(hidden))
        return original(self, hidden, *args)  # type: ignore[arg-type]

    answer = cache.generate(SEGMENTS, max_tokens=5)
    monkeypatch.setattr(Decoder, "forward", counting)
    for count, token in enumerate(answer, start=1):
        assert passes == [1] * (count - 1)
        assert answer.tokens[-1] == token
        assert len(answer.tokens) == count


def test_a_seeded_answer_is_reproducible(cache: ChunkCache) -> None:
    def answer(sampling: Sampling) -> list[int]:
        return list(cache.generate(SEGMENTS, max_tokens=25, sampling=sampling))

    assert answer(Sampling(3.0, seed=5)) == answer(Sampling(3.0, seed=5)) != answer(Sampling(3.0, seed=6))
    assert answer(Sampling(3.0, top_k=1, seed=5)) == answer(Sampling())


def test_what_prompt_and_answer_have_is_penalised_as_by_transformers(tiny: Tiny, cache: ChunkCache) -> None:
    expected = expected_answer(tiny, 20, repetition_penalty=1.5)
    assert list(cache.generate(SEGMENTS, max_tokens=20, sampling=Sampling(repetition_penalty=1.5))) == expected
    assert expected != expected_answer(tiny, 20)


def test_what_was_expected_of_each_token_is_told(tiny: Tiny, cache: ChunkCache) -> None:
    """Of the model's own distribution, whatever was done to it before the choice."""
    for sampling in (Sampling(logprobs=3), Sampling(2.0, seed=1, logprobs=0, frequency_penalty=1, logit_bias={5: 9.0})):
        answer = cache.generate(SEGMENTS, max_tokens=8, sampling=sampling)
        for count, token in enumerate(answer, start=1):
            assert (len(answer.logprobs), answer.logprobs[-1].token) == (count, token)
        logits = stock(tiny.model, [*IDS, *answer.tokens]).logits[len(IDS) - 1 : -1]
        logprobs = torch.log_softmax(logits, -1)
        best = logprobs.topk(sampling.logprobs or 0)
        for place, told in enumerate(answer.logprobs):
            assert told.logprob == pytest.approx(float(logprobs[place, told.token]), abs=1e-4)
            assert [token for token, _ in told.top] == best.indices[place].tolist()
            assert [logprob for _, logprob in told.top] == pytest.approx(best.values[place].tolist(), abs=1e-4)


def test_nothing_is_told_that_nobody_asked_for(cache: ChunkCache) -> None:
    answer = cache.generate(SEGMENTS, max_tokens=3)
    assert len(list(answer)) == 3
    assert answer.logprobs == []


def test_it_says_why_it_ended(tiny: Tiny, cache: ChunkCache) -> None:
    tokens = expected_answer(tiny, 12)
    last = next(token for place, token in enumerate(tokens) if place > 2 and token not in tokens[:place])
    full = cache.generate(SEGMENTS, max_tokens=12)
    assert full.finish_reason is None
    assert (len(list(full)), full.finish_reason) == (12, "length")
    full.close()
    assert full.finish_reason == "length"
    stopped = cache.generate(SEGMENTS, max_tokens=12, stop=frozenset([last]), sampling=Sampling(logprobs=1))
    assert (list(stopped), stopped.finish_reason) == (tokens[: tokens.index(last)], "stop")
    assert [told.token for told in stopped.logprobs] == stopped.tokens, "nothing of the one that stopped it"
    enough = cache.generate(SEGMENTS, max_tokens=12)
    for _ in enough:
        enough.enough()
    assert enough.finish_reason == "stop"
    left = cache.generate(SEGMENTS, max_tokens=12)
    next(iter(left))
    assert left.finish_reason is None
    left.close()
    assert left.finish_reason == "cancelled"


def test_a_bias_of_what_is_no_token_is_refused(cache: ChunkCache) -> None:
    with pytest.raises(ConfigError, match=r"^logit_bias names token 199, and the model's vocabulary has 199: use"):
        cache.generate(SEGMENTS, sampling=Sampling(logit_bias={3: 1.0, 199: 1.0}))
