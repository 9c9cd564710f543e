from __future__ import annotations

from collections.abc import Sequence

import pytest

from ragcache.errors import PromptError
from ragcache.kvgen import KVGen
from ragcache.planning import Plan, plan_prompt
from ragcache.store import KVStore, open_store
from ragcache.types import Chunk, Segment, Span, System, Text
from tests.tiny import Tiny, make_chunks, make_question, make_system

SYSTEM, QUESTION = make_system(7), make_question(5)
A, B, C, D = make_chunks(10, 12, 9, 8)


@pytest.fixture
def store() -> KVStore:
    return open_store(codec="raw")


def keep(store: KVStore, tiny: Tiny, *chunks: Chunk, context_chunks: int = 3) -> None:
    kvgen = KVGen(tiny.engine, context_chunks)
    for variant in kvgen.document(kvgen.system(SYSTEM), chunks):
        store.put(variant)


def plan(store: KVStore, tiny: Tiny, *middle: Segment, lookup: bool = True) -> Plan:
    return plan_prompt([SYSTEM, *middle, QUESTION], tiny.engine.spec.fingerprint, store, lookup=lookup)


def contexts(plan: Plan, place: int) -> list[tuple[str, ...]]:
    return [candidate.info.key.context for candidate in plan.chunks[place].candidates]


def test_where_everything_stands(store: KVStore, tiny: Tiny) -> None:
    found = plan(store, tiny, Text((1, 2)), A, Text((3,)), Text((4, 5)), B, Text((6,)))
    assert [chunk.span for chunk in found.chunks] == [Span(9, 19), Span(22, 34)]
    assert [chunk.index for chunk in found.chunks] == [0, 1]
    assert found.texts == (Span(7, 9), Span(19, 20), Span(20, 22)), "what follows the last chunk is question"
    assert found.question == 34
    assert found.ids == (*SYSTEM.ids, 1, 2, *A.ids, 3, 4, 5, *B.ids, 6, *QUESTION.ids)
    assert all(not chunk.candidates for chunk in found.chunks)


def test_a_prompt_without_chunks_is_all_question(store: KVStore, tiny: Tiny) -> None:
    found = plan(store, tiny, Text((1, 2)))
    assert (found.question, found.texts, found.chunks) == (7, (), ())


def test_the_exact_variant_comes_first_then_the_one_that_fits_best(store: KVStore, tiny: Tiny) -> None:
    keep(store, tiny, C)
    keep(store, tiny, B, C)
    keep(store, tiny, A, B, C)
    keep(store, tiny, D, C)
    assert contexts(plan(store, tiny, B, C), 1)[0] == (B.hash,)
    assert contexts(plan(store, tiny, A, B, C), 2)[0] == (A.hash, B.hash)
    assert contexts(plan(store, tiny, C), 0)[0] == ()
    assert contexts(plan(store, tiny, D, A, B, C), 3)[0] in {(B.hash,), (A.hash, B.hash), (D.hash,)}, "nothing is lost"
    swapped = plan(store, tiny, B, A, C).chunks[2].candidates
    assert len(swapped) == 4
    assert [candidate.exact for candidate in swapped] == [False] * 4
    *behind_others, alone = swapped
    assert alone.info.key.context == (), "its CFO may be the lowest, and it fits worst"
    assert [candidate.reuse.cfo() for candidate in behind_others] == sorted(
        candidate.reuse.cfo() for candidate in behind_others
    )


def test_where_the_chunks_of_the_old_context_stand_now(store: KVStore, tiny: Tiny) -> None:
    keep(store, tiny, A, B, C)
    by_context = {
        candidate.info.key.context: candidate.reuse.places
        for candidate in plan(store, tiny, B, D, C).chunks[2].candidates
    }
    assert by_context == {(A.hash, B.hash): (-1, 0)}


@pytest.mark.parametrize(
    ("ingested", "middle", "exact"),
    [
        ([A, B], [A, B], [True, True]),
        ([A, B], [B, A], [False, False]),
        ([A, B, C], [A, C], [True, False]),
        ([A, B], [Text((1,)), A, B], [False, False]),
        ([A, B], [A, Text((1,)), B], [True, False]),
        ([A, B], [A, B, Text((1,))], [True, True]),
        ([A, A], [A, A], [True, True]),
    ],
)
def test_exact_is_the_same_context_in_the_same_place(
    store: KVStore, tiny: Tiny, ingested: Sequence[Chunk], middle: Sequence[Segment], exact: list[bool]
) -> None:
    keep(store, tiny, *ingested)
    found = plan(store, tiny, *middle)
    assert [chunk.candidates[0].exact for chunk in found.chunks] == exact


def test_a_context_that_had_a_context_is_never_exact(store: KVStore, tiny: Tiny) -> None:
    keep(store, tiny, A, B, C, context_chunks=1)
    assert contexts(plan(store, tiny, B, C), 1) == [(B.hash,)]
    assert not plan(store, tiny, B, C).chunks[1].candidates[0].exact


def test_nothing_is_looked_up_where_nothing_is_wanted(store: KVStore, tiny: Tiny) -> None:
    keep(store, tiny, A)
    assert plan(store, tiny, A).chunks[0].candidates
    assert not plan(store, tiny, A, lookup=False).chunks[0].candidates


def test_a_chunk_that_comes_again_is_looked_up_once(
    store: KVStore, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(store, tiny, A, B)
    asked: list[str] = []
    variants = store.variants
    monkeypatch.setattr(store, "variants", lambda family, flaws: (asked.append(family), variants(family, flaws))[1])
    found = plan(store, tiny, A, B, A, B, A)
    assert [bool(chunk.candidates) for chunk in found.chunks] == [True] * 5
    assert len(asked) == len(set(asked)) == 3, "System, A, B"


def test_another_engine_shares_nothing(store: KVStore, tiny: Tiny) -> None:
    keep(store, tiny, A)
    for system in (SYSTEM, System((1, 2))):
        assert not plan_prompt([system, A, QUESTION], "another", store).chunks[0].candidates


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([], "the prompt has no segments"),
        ([SYSTEM, A, SYSTEM, QUESTION], "segment 2 is a second System"),
        ([SYSTEM, Chunk(()), QUESTION], r"segment 1 \(Chunk\) is empty"),
        ([System(()), A, QUESTION], r"segment 0 \(System\) is empty"),
        ([SYSTEM, A, Text(())], r"segment 2 \(Text\) is empty"),
    ],
)
def test_malformed_prompts(store: KVStore, segments: list[Segment], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        plan_prompt(segments, "engine", store)


@pytest.mark.parametrize("middle", [[C], [A, C], [A, B, C]])
def test_behind_a_text_the_variant_of_these_chunks_comes_first(
    store: KVStore, tiny: Tiny, middle: Sequence[Chunk]
) -> None:
    """It fits best though it is not exact: also the one without context, where no chunk stands before."""
    for context in ([], [A], [A, B], [D], [B, A]):
        keep(store, tiny, *context, C)
    found = plan(store, tiny, Text((1, 2)), *middle)
    *before, last = (chunk.segment.hash for chunk in found.chunks)
    assert last == C.hash
    assert contexts(found, -1)[0] == tuple(before)
    assert not found.chunks[-1].candidates[0].exact


def test_of_two_that_fit_a_prefill_s_own_comes_first(store: KVStore, tiny: Tiny) -> None:
    keep(store, tiny, A, B, C)
    kvgen = KVGen(tiny.engine)
    system = kvgen.system(SYSTEM)
    context = [kvgen.capture(system, [], chunk) for chunk in (A, B)]
    other = kvgen.capture(system, context, C)
    store.put(other)
    first, second, *_ = plan(store, tiny, Text((1,)), A, B, C).chunks[2].candidates
    assert first.info.key.context == second.info.key.context == (A.hash, B.hash)
    assert (first.info.key.history, second.info.key.history) == ("", other.key.history)
