"""Linked requests inside vLLM against the torch engine: the same tokens for the same plan."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from ragcache.cache import ChunkCache
from ragcache.engine.vllm.requests import UNSERVED
from ragcache.errors import ConfigError
from ragcache.linking import LINKERS, make_linker
from ragcache.linking.auto import Auto
from ragcache.linking.base import LinkedPrompt, Linker, Positions
from ragcache.linking.baselines import Naive
from ragcache.linking.focus import narrowed
from ragcache.loader.sequential import SequentialLoader
from ragcache.report import Report
from ragcache.store import open_store
from ragcache.types import Segment, Text, VariantKey
from tests.equivalence.vllm.conftest import CONTEXT, OpenPair, Pair
from tests.tiny import assert_close, draw, make_chunks, make_question, make_system
from tests.vllm_state import drain, free_blocks

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
STRANGER = make_chunks(30, seed=9)[0]
SERVED = [*(name for name in LINKERS if name not in UNSERVED), "auto:ratio=1"]
SETUPS = {
    "llama, small blocks": ("llama", {"block_size": 32}),
    "qwen2, large blocks, no prefix caching": ("qwen2", {"block_size": 128, "enable_prefix_caching": False}),
    "llama, slices": ("llama", {"block_size": 32, "max_num_batched_tokens": 64, "max_num_seqs": 16}),
}
PROMPTS: dict[str, Sequence[Segment]] = {
    "new order": [DOCUMENT[3], DOCUMENT[0], DOCUMENT[5], DOCUMENT[1]],
    "exact, then texts and a stranger": [*DOCUMENT[:2], STRANGER, Text(draw(6, 50)), DOCUMENT[3]],
    "twice the same": [DOCUMENT[2], DOCUMENT[5], DOCUMENT[2]],
    "all exact": DOCUMENT[:3],
    "nothing cached": [STRANGER],
}


ORDERS: dict[str, list[Segment]] = {
    "text first": [Text(draw(6, 50)), SYSTEM, DOCUMENT[1], DOCUMENT[0], QUESTION],
    "System between": [DOCUMENT[2], SYSTEM, DOCUMENT[0], Text(draw(6, 50)), DOCUMENT[1], QUESTION],
    "no System": [DOCUMENT[1], Text(draw(6, 50)), DOCUMENT[2], QUESTION],
    "a chunk last": [SYSTEM, QUESTION, DOCUMENT[2], STRANGER, DOCUMENT[0], DOCUMENT[3]],
    "a chunk alone": [DOCUMENT[1]],
}


@pytest.fixture(scope="module", params=SETUPS)
def pair(request: pytest.FixtureRequest, open_pair: OpenPair) -> Iterator[Pair]:
    family, options = SETUPS[request.param]
    with open_pair(family, **options) as opened:
        list(opened.torch.ingest(SYSTEM, DOCUMENT))
        yield opened


def prompt(name: str) -> list[Segment]:
    return [SYSTEM, *PROMPTS[name], QUESTION]


def both(
    pair: Pair, segments: list[Segment], linker: str, tokens: int = 12, reference: Linker | None = None
) -> tuple[Report, Report]:
    """Reports of equal answers, of a link that nobody has made before. `reference`: the linker on torch, if another."""
    drain(pair.engine)
    pair.engine.forget_prefixes()
    ours = pair.vllm.generate(segments, max_tokens=tokens, linker=linker)
    theirs = pair.torch.generate(segments, max_tokens=tokens, linker=reference or linker)
    assert list(ours) == list(theirs)
    return ours.report, theirs.report


def told(report: Report) -> list[tuple[int, int, int]]:
    return [(chunk.reused, chunk.repaired, chunk.computed) for chunk in report.chunks]


@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("linker", SERVED)
def test_the_same_tokens_for_the_same_plan(pair: Pair, linker: str, name: str) -> None:
    ours, theirs = both(pair, prompt(name), linker)
    assert told(ours) == told(theirs)
    assert ours.incidents == theirs.incidents == []


@dataclass(frozen=True)
class Narrowed(Linker):
    """A focus as vLLM has it, on the torch engine."""

    name: ClassVar[str] = "narrowed"
    inner: Linker = field(default_factory=Naive)

    def select(self, prompt: LinkedPrompt) -> Positions:
        return narrowed(self.inner.choose(prompt), prompt).positions


@pytest.mark.parametrize(("plain", "focused"), [("cci", "cci:focus=3"), ("auto:ratio=0.3", "auto:ratio=0.3,focus=3")])
def test_a_focus_is_told_by_a_probe(pair: Pair, plain: str, focused: str) -> None:
    segments: list[Segment] = [SYSTEM, *DOCUMENT[:1:-1], QUESTION]  # none has any of its context
    without, _ = both(pair, segments, plain)
    ours, theirs = both(pair, segments, focused, reference=Narrowed(inner=make_linker(plain)))
    assert told(ours) == told(theirs)
    assert 0 < ours.repaired < without.repaired
    assert ours.incidents == []
    other = pair.vllm.generate([*segments[:-1], make_question(16)], max_tokens=1, linker=focused)
    list(other)
    assert other.report.prefix_tokens < sum(map(len, segments[:2])), "what another question focuses on is not its link"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("linker", ["naive", "cci", "auto", "query", "full"])
def test_segments_may_stand_in_any_order(pair: Pair, linker: str, order: str) -> None:
    ours, theirs = both(pair, ORDERS[order], linker)
    assert told(ours) == told(theirs)
    assert ours.incidents == theirs.incidents == []


def test_what_vllm_would_not_know_is_refused(pair: Pair) -> None:
    class Mine(Auto):
        """Its request would name the registry's."""

    with pytest.raises(ConfigError, match="not the registry's 'auto'"):
        pair.vllm.generate(prompt("new order"), max_tokens=1, linker=Mine())
    with pytest.raises(ConfigError, match="give no loader and no rates"):
        ChunkCache(pair.engine, pair.vllm.store, loader=SequentialLoader()).generate(prompt("new order"), max_tokens=1)


def test_a_repair_goes_with_the_question(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """In vLLM's own forward: the weights are read once for both."""

    def alone(prompts: object) -> None:
        raise AssertionError("a pass of its own")

    monkeypatch.setattr(pair.engine._worker.spans, "compute", alone)
    ours, _ = both(pair, prompt("new order"), "first_tokens:k=4")
    assert sum(chunk.repaired for chunk in ours.chunks) == 12
    assert ours.seconds["repair"] > 0


def test_a_question_of_one_token(pair: Pair) -> None:
    for linker in ("naive", "auto"):
        both(pair, [SYSTEM, *PROMPTS["new order"], Text(draw(1, 3))], linker)


def test_a_linked_prompt_never_answers_an_exact_one(pair: Pair) -> None:
    segments = [SYSTEM, *(DOCUMENT[place] for place in (4, 2, 0, 5)), make_question(40)]
    linked, exact = (list(pair.torch.generate(segments, max_tokens=60, linker=linker)) for linker in ("naive", "full"))
    assert linked != exact, "or this shows nothing"
    for linker, expected in (("naive", linked), ("full", exact), ("naive", linked), ("full", exact)):
        assert list(pair.vllm.generate(segments, max_tokens=60, linker=linker)) == expected


def test_captured_by_either_engine(pair: Pair) -> None:
    for ours, theirs in zip(
        pair.vllm.kvgen.ingest(pair.vllm.kvgen.system(SYSTEM), DOCUMENT),
        pair.torch.kvgen.ingest(pair.torch.kvgen.system(SYSTEM), DOCUMENT),
        strict=True,
    ):
        assert ours.key == theirs.key
        assert ours.ids == theirs.ids
        assert_close(ours.k, theirs.k)
        assert_close(ours.v, theirs.v)
        for name in ("inter", "intra", "received"):
            assert getattr(ours.profile, name) == pytest.approx(getattr(theirs.profile, name), abs=1e-5)


def test_what_a_prompt_lacked_is_there_for_the_next(pair: Pair) -> None:
    """As the torch engine keeps it: the same variants, of chunks that no other test asks for."""

    segments = [SYSTEM, *make_chunks(21, 33, 28, seed=4), QUESTION]
    stores = [open_store(codec="raw") for _ in range(2)]
    ours = ChunkCache(pair.engine, stores[0], "naive", context_chunks=CONTEXT)
    theirs = ChunkCache(pair.torch.engine, stores[1], "naive", context_chunks=CONTEXT)
    pair.engine.use_store(stores[0])
    try:
        for asked in (segments, segments, [SYSTEM, *reversed(segments[1:-1]), QUESTION]):
            one, other = ours.generate(asked, max_tokens=5), theirs.generate(asked, max_tokens=5)
            assert list(one) == list(other)
            assert told(one.report) == told(other.report)
        for segment in segments[:-1]:
            family = VariantKey(pair.engine.spec.fingerprint, SYSTEM.hash, (), segment.hash).family
            kept = [{info.key for info in store.variants(family)} for store in stores]
            assert kept[0] == kept[1]
    finally:
        pair.engine.use_store(pair.vllm.store)


def test_many_at_once(pair: Pair) -> None:
    """Linked and plain ones, and some whose reader leaves: the others' answers stay, and no block is lost."""
    drain(pair.engine)
    pair.engine.forget_prefixes()
    before = free_blocks(pair.engine)
    dice = random.Random(0)
    plain = make_system(30)  # a link would go on behind what another has computed plainly behind the same System
    asked = [
        (
            [plain if linker == "full" else SYSTEM, *(DOCUMENT[place] for place in dice.sample(range(6), 4)), QUESTION],
            linker,
        )
        for linker in dice.choices(SERVED, k=32)
    ]

    def answer(number: int) -> list[int] | None:
        segments, linker = asked[number]
        generation = pair.vllm.generate(segments, max_tokens=20, linker=linker)
        if number % 5 == 0:
            if number % 2:
                next(iter(generation))
            generation.close()
            return None
        return list(generation)

    with ThreadPoolExecutor(32) as readers:
        answers = list(readers.map(answer, range(32)))
    for (segments, linker), tokens in zip(asked, answers, strict=True):
        if tokens is not None:
            assert tokens == list(pair.torch.generate(segments, max_tokens=20, linker=linker)), linker
    drain(pair.engine)
    assert free_blocks(pair.engine) == before
    pair.engine.check_integrity()
