"""Whatever breaks while a request is linked costs it its link: it is answered as a plain prompt, beside others."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ragcache.engine.vllm import joint_pass
from ragcache.engine.vllm.block_names import SaltedHasher
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.errors import ModelError
from ragcache.linking.auto import Auto
from ragcache.report import Report
from ragcache.types import Segment
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.fuzz.link_asks import Kept
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain, free_blocks, is_waiting

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
PROMPT: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (0, 3, 5, 1)), QUESTION]
OTHER: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (2, 4)), make_question(9)]


@pytest.fixture(scope="module")
def pair(open_pair: OpenPair) -> Iterator[Pair]:
    with open_pair("llama", block_size=32) as opened:
        list(opened.torch.ingest(SYSTEM, DOCUMENT))
        yield opened


@pytest.fixture
def sound(pair: Pair) -> Iterator[Pair]:
    """No block is lost, and nothing of a request stays behind."""
    pair.engine.forget_prefixes()
    before = free_blocks(pair.engine)
    pair.engine._connector.scheduler.outcomes.totals = Kept()
    yield pair
    drain(pair.engine)
    assert free_blocks(pair.engine) == before
    pair.engine.check_integrity()
    assert not is_waiting(pair.engine._connector.scheduler)


def counted(pair: Pair) -> Counter[str]:
    drain(pair.engine)
    kept: Kept = pair.engine._connector.scheduler.outcomes.totals
    pair.engine._ask(kept.take)
    return kept.all


class Breaking:
    """A method that fails, at its first calls or for ever."""

    def __init__(self, plain: Any, error: Exception, times: int = 1_000_000):
        self._plain, self._error, self._left = plain, error, times

    def __get__(self, instance: Any, owner: Any) -> Any:
        return lambda *args, **kwargs: self(*((instance, *args) if instance is not None else args), **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if self._left >= 0:
            raise self._error
        return self._plain(*args, **kwargs)


def broken(patch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception, times: int = 1_000_000) -> None:
    patch.setattr(owner, name, Breaking(getattr(owner, name), error, times))


PLACES: dict[str, tuple[str, str, Exception]] = {
    "the plan": ("variants", "auto", TypeError("odd")),
    "the choice": ("choose", "auto", OverflowError("int too large to convert to float")),
    "the hashes": ("_chained", "auto", AssertionError("a hash")),
    "the memory": ("room", "auto", RuntimeError("out of memory")),
    "the paged cache": ("write", "auto", RuntimeError("out of memory")),
    "the probe": ("question_attention", "auto", IndexError("a position")),
    "the repair": ("compute", "first_tokens:k=4", RuntimeError("out of memory")),
    "the shared forward": ("_behind", "first_tokens:k=4", ValueError("a shape")),
}


def owner_of(pair: Pair, name: str) -> Any:
    owners = {"variants": pair.vllm.store, "choose": Auto, "_chained": SaltedHasher, "_behind": joint_pass}
    return owners.get(name, pair.engine._worker.spans)


@pytest.mark.parametrize("place", PLACES)
def test_a_request_whose_linking_breaks_is_a_plain_one(
    sound: Pair, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, linker, error = PLACES[place]
    expected = list(sound.torch.generate(PROMPT, max_tokens=12, linker="full"))
    with monkeypatch.context() as patch:
        broken(patch, owner_of(sound, name), name, error)
        if name == "compute":
            broken(patch, sound.engine._worker.spans, "join", error)
        generation = sound.vllm.generate(PROMPT, max_tokens=12, linker=linker)
        assert list(generation) == expected
    (told,) = generation.report.incidents
    assert str(error) in told
    assert "not linked" in told
    totals = counted(sound)
    assert (totals["requests/failed"], totals["requests/linked"]) == (1, 0)
    sound.engine.forget_prefixes()  # which hold the plain KV under the link's name: as good as a link, or better
    again = sound.vllm.generate(PROMPT, max_tokens=12, linker=linker)
    assert list(again) == list(sound.torch.generate(PROMPT, max_tokens=12, linker=linker)), "the engine goes on"


@pytest.mark.parametrize("place", PLACES)
def test_those_beside_it_are_linked(sound: Pair, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first call fails; the other request of the same steps is linked."""
    name, linker, error = PLACES[place]
    full, linked = (list(sound.torch.generate(PROMPT, max_tokens=12, linker=one)) for one in ("full", linker))
    beside = list(sound.torch.generate(OTHER, max_tokens=12, linker=linker))
    with monkeypatch.context() as patch:
        broken(patch, owner_of(sound, name), name, error, times=1)
        generations = [sound.vllm.generate(one, max_tokens=12, linker=linker) for one in (PROMPT, OTHER)]
        first, second = map(list, generations)
    assert second in (beside, list(sound.torch.generate(OTHER, max_tokens=12, linker="full")))
    assert first in (full, linked)
    shared = name == "_behind"  # one forward for both
    assert counted(sound)["requests/failed"] <= 1 + shared


def test_a_forward_that_rows_cannot_join_is_followed_by_one_of_their_own(
    sound: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, sound.engine._worker.spans, "join", RuntimeError("once"), times=1)
    generation = sound.vllm.generate(PROMPT, max_tokens=12, linker="first_tokens:k=4")
    assert list(generation) == list(sound.torch.generate(PROMPT, max_tokens=12, linker="first_tokens:k=4"))
    assert generation.report.incidents == []


@pytest.mark.parametrize("name", ["open", "place"])
def test_a_piece_that_breaks_is_computed(sound: Pair, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt stays linked."""
    owner = sound.vllm.store if name == "open" else sound.engine._worker.spans
    with monkeypatch.context() as patch:
        broken(patch, owner, name, ValueError("odd bytes"))
        generation = sound.vllm.generate(PROMPT, max_tokens=12, linker="naive")
        assert list(generation) == list(sound.torch.generate(PROMPT, max_tokens=12, linker="full"))
    assert "cache entry not used: ValueError: odd bytes" in generation.report.incidents[0]
    assert generation.report.computed > 0
    assert counted(sound)["requests/failed"] == 0


def test_a_capture_that_breaks_says_so(sound: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    kvgen = sound.vllm.kvgen
    with monkeypatch.context() as patch:
        broken(patch, sound.engine._worker.spans, "capture", AssertionError("rows"))
        with pytest.raises(ModelError, match="not captured: AssertionError: rows"):
            kvgen.system(SYSTEM)
    assert counted(sound)["requests/failed"] == 1
    assert len(kvgen.system(SYSTEM)) == len(SYSTEM)


def test_a_report_that_cannot_be_told_is_left_out(sound: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Report.to_dict
    monkeypatch.setattr(Report, "to_dict", lambda report: plain(replace(report, charged=float("nan"))))
    generation = sound.vllm.generate(PROMPT, max_tokens=12)
    assert list(generation) == list(sound.torch.generate(PROMPT, max_tokens=12))
    assert "no report" in generation.report.incidents[0]


def test_a_reader_that_breaks_is_forgotten(sound: Pair) -> None:
    """And everybody else reads on."""
    taken: queue.SimpleQueue[str] = queue.SimpleQueue()

    def deliver(output: Any) -> None:
        taken.put("once")
        raise ValueError("nobody reads this")

    ids = [token for segment in PROMPT for token in segment.ids]
    sound.engine.submit(ids, sound.engine.sampling(20), deliver)
    assert taken.get() == "once"
    assert list(sound.vllm.generate(OTHER, max_tokens=12)) == list(sound.torch.generate(OTHER, max_tokens=12))
    assert taken.empty()


def test_options_that_keep_vllm_from_any_cache_are_told(sound: Pair) -> None:
    outputs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    params = sound.engine.sampling(1, {"kv_transfer_params": link_params(PROMPT, "auto")}, prompt_logprobs=1)
    sound.engine.submit([token for segment in PROMPT for token in segment.ids], params, outputs.put)
    output = outputs.get()
    assert "prompt_logprobs" in output.kv_transfer_params[KEY]["incidents"][0]
    assert counted(sound)["requests/refused"] == 1


def test_parameters_that_are_no_object_are_refused(sound: Pair) -> None:
    for odd in ([], "auto", [1], 5):
        with pytest.raises((AttributeError, TypeError, ValueError)):
            sound.engine.submit((1, 2, 3), sound.engine.sampling(5, {"kv_transfer_params": odd or [0]}), print)
