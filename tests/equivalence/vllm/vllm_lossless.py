"""KV that a codec has rounded, beside requests that vLLM answers from its prefix cache: they get a prefill's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.types import Segment, Variant
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.rounding import keep_rounded
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48)
PROMPT: list[Segment] = [SYSTEM, *DOCUMENT, QUESTION]
TOKENS = 60


@pytest.fixture(scope="module")
def pair(open_pair: OpenPair) -> Iterator[Pair]:
    with open_pair(block_size=32) as opened:
        yield opened


@pytest.fixture
def rounded(pair: Pair, tmp_path: Path) -> KVStore:
    """What an old folder holds that a codec has rounded, in a store that loses nothing."""
    system = pair.torch.kvgen.system(SYSTEM)
    keep_rounded(
        open_store(tmp_path, ram_bytes=0, codec="raw"), [system, *pair.torch.kvgen.document(system, DOCUMENT)], "int8"
    )
    return open_store(tmp_path, ram_bytes=0, codec="raw")


@pytest.fixture
def computed(pair: Pair) -> KVStore:
    store = open_store(codec="raw")
    system = pair.torch.kvgen.system(SYSTEM)
    for variant in (system, *pair.torch.kvgen.document(system, DOCUMENT)):
        store.put(variant)
    return store


@pytest.fixture(autouse=True)
def _afresh(pair: Pair) -> Iterator[None]:
    pair.engine.forget_prefixes()
    yield
    drain(pair.engine)
    pair.engine.check_integrity()
    pair.engine.use_store(pair.vllm.store)


def expected(pair: Pair) -> list[int]:
    return list(pair.torch.generate(PROMPT, max_tokens=TOKENS, linker="full"))


def test_a_rounded_entry_never_answers_an_exact_request(pair: Pair, rounded: KVStore) -> None:
    pair.engine.use_store(rounded)
    linked = pair.vllm.generate(PROMPT, max_tokens=TOKENS)
    assert list(linked) != expected(pair), "or this shows nothing"
    assert [(chunk.tier, chunk.exact) for chunk in linked.report.chunks] == [("disk", False)] * 3
    assert list(pair.vllm.generate(PROMPT, max_tokens=TOKENS, linker="full")) == expected(pair)


def test_a_worker_that_finds_a_rounded_copy_computes_what_others_may_share(
    pair: Pair, rounded: KVStore, computed: KVStore
) -> None:
    """The two sides have a RAM each: what one knows as computed, the other may get back from a disk."""
    pair.engine.use_store(rounded)
    pair.engine._connector.scheduler.store = computed
    linked = pair.vllm.generate(PROMPT, max_tokens=TOKENS)
    assert list(linked) == expected(pair)
    assert [chunk.tier for chunk in linked.report.chunks] == [COMPUTED] * 3
    assert any("has lost something at rest" in incident for incident in linked.report.incidents)
    assert list(pair.vllm.generate(PROMPT, max_tokens=TOKENS, linker="full")) == expected(pair)


def test_what_was_computed_is_shared(pair: Pair, computed: KVStore) -> None:
    """So the refusals above are for the rounding."""
    pair.engine.use_store(computed)
    first, second = (pair.vllm.generate(PROMPT, max_tokens=TOKENS) for _ in range(2))
    assert list(first) == list(second) == expected(pair)
    assert [chunk.exact for chunk in first.report.chunks] == [True] * 3
    third = pair.vllm.generate(PROMPT, max_tokens=TOKENS)
    assert list(third) == expected(pair)
    assert third.report.chunks[0].tier == "prefix"


@pytest.mark.parametrize("lossless", [True, False])
def test_a_capture_knows_what_it_was_computed_over(pair: Pair, lossless: bool) -> None:
    kvgen = pair.vllm.kvgen
    system = kvgen.system(SYSTEM)
    assert system.lossless
    first = kvgen.capture(told(system, lossless), [], DOCUMENT[0])
    assert first.lossless is lossless
    context = [told(kvgen.capture(system, [], DOCUMENT[0]), lossless)]
    assert kvgen.capture(system, context, DOCUMENT[1]).lossless is lossless


def told(variant: Variant, lossless: bool) -> Variant:
    return variant if lossless else replace(variant, lineage=variant.lineage.rounded("int8"))
