"""What a server captures is written beside its steps: a disk that is slow holds up no token of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ragcache.engine.vllm.requests import KEY, capture_params
from ragcache.errors import StoreFull
from ragcache.store import open_store
from ragcache.types import Segment, Text, Variant, VariantKey
from tests.cold_prompts import LIMIT_S
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain, left_as_found

SYSTEM = make_system(40)


@pytest.fixture(scope="module")
def opened(open_pair: OpenPair) -> Iterator[Pair]:
    with open_pair(store=open_store(codec="raw"), linking={"captures": True}, block_size=32) as pair:
        yield pair


@pytest.fixture
def pair(opened: Pair) -> Iterator[Pair]:
    with left_as_found(opened.engine):
        yield opened


def capture(pair: Pair, system: Segment, *behind: Segment, most: int = 1) -> tuple[VariantKey, Any]:
    """A client's request, and what tells of its end. `behind` it: what is captured in its place."""
    from vllm import SamplingParams

    keys, outputs, done = (
        [VariantKey(pair.engine.spec.fingerprint, "", (), system.hash)],
        list[Any](),
        threading.Event(),
    )
    keys += [VariantKey(keys[0].fingerprint, system.hash, (), one.hash) for one in behind]
    segments = [system, *behind]

    def deliver(output: Any) -> None:
        outputs.append(output)
        if output is None or output.finished:
            done.set()

    asked = {"kv_transfer_params": capture_params(segments, keys)}
    params = SamplingParams(max_tokens=most, temperature=0.0, ignore_eos=True, extra_args=asked)
    pair.engine.submit([token for one in segments for token in one.ids], params, deliver)
    return keys[-1], (outputs, done)


def test_others_answer_while_the_disk_takes_its_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    store = pair.engine._worker.store
    begun, goes, put = threading.Event(), threading.Event(), store.put

    def slow(variant: Variant, **given: Any) -> bool:
        begun.set()
        assert goes.wait(LIMIT_S)
        return bool(put(variant, **given))

    monkeypatch.setattr(store, "put", slow)
    key, (_, done) = capture(pair, SYSTEM)
    assert begun.wait(LIMIT_S)
    assert len(list(pair.vllm.generate([make_question(20)], max_tokens=8, linker="naive"))) == 8
    assert not done.is_set() and store.open(key) is None
    goes.set()
    assert done.wait(LIMIT_S)
    entry = store.open(key)
    assert entry is not None, "it is there when its request ends"
    entry.close()


def test_a_disk_that_is_full_is_told_with_the_answer(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(variant: Variant, **given: Any) -> bool:
        raise StoreFull("the disk of /kv is nearly full")

    monkeypatch.setattr(pair.engine._worker.store, "put", full)
    _, (outputs, done) = capture(pair, make_system(41))
    assert done.wait(LIMIT_S)
    assert outputs[-1].kv_transfer_params[KEY]["incidents"] == ["KV not stored: the disk of /kv is nearly full"]


def test_where_nothing_is_captured_the_prompt_is_computed(pair: Pair) -> None:
    """Its blocks hold what others left there, and whoever captures may let vLLM go on."""
    (chunk,), system = make_chunks(60), make_system(44)
    list(pair.vllm.generate([make_system(30), make_question(150)], max_tokens=40))
    drain(pair.engine)
    pair.engine.forget_prefixes()
    key, (outputs, done) = capture(pair, system, chunk, most=12)
    assert done.wait(LIMIT_S)
    (incident,) = outputs[-1].kv_transfer_params[KEY]["incidents"]
    assert incident == "not captured: segment 0 before it is not stored"
    assert pair.engine._worker.store.open(key) is None
    segments = [system, Text(chunk.ids)]
    assert list(outputs[-1].outputs[0].token_ids) == list(pair.torch.generate(segments, max_tokens=12, linker="full"))
