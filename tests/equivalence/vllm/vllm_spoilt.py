"""Rows that vLLM was to compute with a question, and that could not be: nobody is answered from what they would be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from ragcache.types import Segment
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.equivalence.vllm.vllm_faults import broken
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain, left_as_found

LINKER = "first_tokens:k=4"
SYSTEM, DOCUMENT = make_system(40), make_chunks(50, 61, 48, 55)
PROMPT: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (2, 0, 3)), make_question(15)]
# The middle one is not stored: its rows are computed with the question, and stand on what others left.
LACKING: list[Segment] = [*PROMPT[:2], *make_chunks(47, seed=5), *PROMPT[3:]]


@pytest.fixture(scope="module")
def opened(open_pair: OpenPair) -> Iterator[Pair]:
    with open_pair("llama", block_size=32) as pair:
        list(pair.torch.ingest(SYSTEM, DOCUMENT))
        yield pair


@pytest.fixture
def pair(opened: Pair) -> Iterator[Pair]:
    with left_as_found(opened.engine):
        list(opened.vllm.generate([make_system(30), make_question(200)], max_tokens=60))  # what is left in the blocks
        drain(opened.engine)
        opened.engine.forget_prefixes()
        yield opened


def break_tails(pair: Pair, patch: pytest.MonkeyPatch) -> None:
    for name in ("compute", "join"):
        broken(patch, pair.engine._worker.spans, name, RuntimeError("out of memory"))


@pytest.mark.parametrize("prompt", [PROMPT, LACKING])
def test_one_that_vllm_takes_up_and_does_not_schedule(
    pair: Pair, prompt: list[Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = pair.engine._connector
    manager = connector._manager
    plain, refused = manager.allocate_slots, list[str]()

    def allocate(request: Any, *args: Any, **named: Any) -> Any:
        taken_up = request.request_id in connector._resumed and request.status == RequestStatus.WAITING
        if taken_up and not refused:
            refused.append(request.request_id)
            return None  # the pool is empty in this step
        return plain(request, *args, **named)

    expected = list(pair.torch.generate(prompt, max_tokens=12, linker="full"))
    with monkeypatch.context() as patch:
        patch.setattr(manager, "allocate_slots", allocate)
        break_tails(pair, patch)
        generation = pair.vllm.generate(prompt, max_tokens=12, linker=LINKER)
        assert list(generation) == expected
    assert refused
    assert "not linked: RuntimeError: out of memory" in generation.report.incidents


def test_nobody_finds_what_was_not_computed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request may be gone before vLLM has computed it anew."""
    linked = list(pair.torch.generate(PROMPT, max_tokens=12, linker=LINKER))
    held = list[Any]()

    def hold(blocks: set[int]) -> None:
        plain(blocks)
        pool = connector._manager.block_pool
        held.extend(pool.blocks[block].block_hash for block in blocks)

    connector = pair.engine._connector
    plain = connector._spoilt
    with monkeypatch.context() as patch:
        patch.setattr(connector, "_spoilt", hold)
        break_tails(pair, patch)
        list(pair.vllm.generate(PROMPT, max_tokens=12, linker=LINKER))
    assert held and set(held) == {None}
    assert list(pair.vllm.generate(PROMPT, max_tokens=12, linker=LINKER)) == linked
