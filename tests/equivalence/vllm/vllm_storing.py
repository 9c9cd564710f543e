"""What a server captures is written beside its steps: a disk that is slow holds up no token of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ragcache.engine.vllm.requests import KEY, capture_params
from ragcache.errors import StoreFull
from ragcache.store import open_store
from ragcache.types import Segment, Variant, VariantKey
from tests.cold_prompts import LIMIT_S
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.tiny import make_question, make_system
from tests.vllm_state import left_as_found

SYSTEM = make_system(40)


@pytest.fixture(scope="module")
def opened(open_pair: OpenPair) -> Iterator[Pair]:
    with open_pair(store=open_store(codec="raw"), linking={"captures": True}, block_size=32) as pair:
        yield pair


@pytest.fixture
def pair(opened: Pair) -> Iterator[Pair]:
    with left_as_found(opened.engine):
        yield opened


def capture(pair: Pair, system: Segment) -> tuple[VariantKey, Any]:
    """A client's request, and what tells of its end."""
    from vllm import SamplingParams

    key, outputs, done = VariantKey(pair.engine.spec.fingerprint, "", (), system.hash), list[Any](), threading.Event()

    def deliver(output: Any) -> None:
        outputs.append(output)
        if output is None or output.finished:
            done.set()

    params = SamplingParams(max_tokens=1, extra_args={"kv_transfer_params": capture_params([system], [key])})
    pair.engine.submit(system.ids, params, deliver)
    return key, (outputs, done)


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
