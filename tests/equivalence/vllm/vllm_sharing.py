"""Who asks for the same link finds it in vLLM's prefix cache; who asks for nothing never does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from benchmarks.vllm_requests import outputs
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.types import Segment, Text
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.tiny import draw, make_chunks, make_question, make_system
from tests.vllm_state import drain

BLOCK = 32
SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55)
PROMPT: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (3, 0, 2)), QUESTION]


@pytest.fixture(scope="module")
def opened(open_pair: OpenPair) -> Iterator[Pair]:
    with open_pair("llama", block_size=BLOCK) as pair:
        list(pair.torch.ingest(SYSTEM, DOCUMENT))
        yield pair


@pytest.fixture
def pair(opened: Pair) -> Pair:
    forget(opened)
    return opened


@pytest.fixture
def held(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens that vLLM's prefix cache had of each request, as it asks us for the rest."""
    found: list[int] = []
    scheduler = pair.engine._connector.scheduler
    matched = scheduler.matched

    def asked(request: str, computed: int) -> int | None:
        answer: int | None = matched(request, computed)
        found.extend([] if answer is None else [computed])
        return answer

    monkeypatch.setattr(scheduler, "matched", asked)
    return found


def forget(pair: Pair) -> None:
    drain(pair.engine)
    pair.engine.forget_prefixes()


def ids_of(segments: Sequence[Segment]) -> list[int]:
    return [token for segment in segments for token in segment.ids]


def ask(pair: Pair, segments: Sequence[Segment], linker: str | None, **settings: Any) -> tuple[list[int], Any]:
    """The tokens of the answer, and vLLM's last output."""
    extra = {"kv_transfer_params": link_params(segments, linker)} if linker else None
    found = list(outputs(pair.engine, ids_of(segments), pair.engine.sampling(40, extra, **settings)))
    return [token for output in found for token in output.outputs[0].token_ids], found


def tiers(found: Any) -> Counter[str]:
    return Counter(chunk["tier"] for chunk in found[-1].kv_transfer_params[KEY]["chunks"])


@pytest.mark.parametrize("linker", ["naive", "auto", "first_tokens:k=4"])
def test_a_second_turn_finds_chunks_and_history(pair: Pair, held: list[int], linker: str) -> None:
    answer, first = ask(pair, PROMPT, linker)
    assert tiers(first) == {"ram": 3}
    behind = Text((*QUESTION.ids, *answer, *draw(9, 70)))
    again = [*PROMPT[:-1], behind]
    _, second = ask(pair, again, linker)
    known = len(ids_of(PROMPT)) + len(answer) - 1  # the last token was never computed
    assert held == [0, known // BLOCK * BLOCK]
    assert tiers(second) == {"prefix": 3}


def test_another_question_finds_the_chunks(pair: Pair, held: list[int]) -> None:
    ask(pair, PROMPT, "naive")
    _, other = ask(pair, [*PROMPT[:-1], Text(draw(50, 71))], "naive")
    assert held == [0, (len(ids_of(PROMPT)) - len(QUESTION)) // BLOCK * BLOCK]
    assert set(tiers(other)) == {"prefix", "ram"}, "the last block holds some of the question, and is linked again"


@pytest.mark.parametrize("linker", ["naive", "auto", "first_tokens:k=4"])
def test_a_link_finds_the_plain_prefill_of_a_turn_before(pair: Pair, held: list[int], linker: str) -> None:
    """Its chunks were captured only after that turn."""
    answer, _ = ask(pair, PROMPT, None)
    again = [*PROMPT[:-1], Text((*QUESTION.ids, *answer, *draw(9, 70)))]
    linked, second = ask(pair, again, linker)
    known = len(ids_of(PROMPT)) + len(answer) - 1
    assert held[-1] == known // BLOCK * BLOCK
    assert tiers(second) == {"prefix": 3}
    exact, _ = ask(pair, again, None)
    assert linked == exact, "all of it is a plain prefill"
    assert held[-1] == len(ids_of(again)) // BLOCK * BLOCK, "and has the names of one"


def test_a_link_goes_on_behind_the_plain_prefill_of_the_same_chunks(pair: Pair, held: list[int]) -> None:
    same = [*PROMPT[:2], Text(draw(60, 5))]
    ask(pair, same, None)
    plain = len(ids_of(PROMPT[:2])) // BLOCK * BLOCK
    first, found = ask(pair, PROMPT, "naive")
    assert held[-1] == plain
    assert tiers(found)["ram"] == 3, "some tokens of the first chunk are in the block that ends behind it"
    again, found = ask(pair, PROMPT, "naive")
    assert (again, held[-1]) == (first, (len(ids_of(PROMPT)) - len(QUESTION)) // BLOCK * BLOCK)
    ask(pair, PROMPT, None)
    assert held[-1] == plain, "what is linked behind it has other names"


def test_kv_that_is_linked_never_takes_the_names_of_what_was_evicted(pair: Pair, held: list[int]) -> None:
    """Between the naming of a request and its blocks others may have taken what it was named behind."""
    ask(pair, PROMPT, None)
    scheduler = pair.engine._connector.scheduler
    know = scheduler._leaders.know

    def evicted(*args: Any) -> None:
        know(*args)
        assert pair.engine._scheduler.kv_cache_manager.reset_prefix_cache()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler._leaders, "know", evicted)
        ask(pair, PROMPT, "naive")
    assert held[-1] == 0
    ask(pair, PROMPT, None)
    assert held[-1] == len(SYSTEM) // BLOCK * BLOCK


@pytest.mark.parametrize("linker", [None, "full", "first_tokens:k=4"])
def test_others_find_what_is_exact_alone(pair: Pair, held: list[int], linker: str | None) -> None:
    plain, _ = ask(pair, PROMPT, linker)
    forget(pair)
    ask(pair, PROMPT, "naive")
    answer, _ = ask(pair, PROMPT, linker)
    assert answer == plain
    assert held[2:] == [len(SYSTEM) // BLOCK * BLOCK]


def test_eight_answers_link_once(pair: Pair, held: list[int]) -> None:
    _, found = ask(pair, PROMPT, "naive", n=8, temperature=1.0, seed=0)
    assert {completion.index for output in found for completion in output.outputs} == set(range(8))
    asked_at = len(ids_of(PROMPT)) - len(QUESTION)
    assert held == [0, *[asked_at // BLOCK * BLOCK] * 7]
