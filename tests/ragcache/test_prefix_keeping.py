"""Which prefixes are kept: what comes again, never what is approximate, within bounds, and no longer than its texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ragcache import prefix_keeping
from ragcache.address import prefix_name
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import StoreError
from ragcache.keeping import Keeper
from ragcache.prefix import BLOCK
from ragcache.prefix_keeping import SHARE, Recurrence
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.store.folder import CacheFolder
from ragcache.types import Segment, Text, Variant
from tests.prefixes import SYSTEM, Talk, blocks_of, cache_over, disk, said, same_bits, stored, text, warm
from tests.rounding import rounded
from tests.tiny import make_chunks, make_tiny

DOCUMENT = make_chunks(90, 130, 75, 60)
LONG: list[Segment] = [SYSTEM, text(600, 1)]


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return make_tiny(max_position_embeddings=2048).engine


def entries(store: KVStore) -> int:
    return store.kept.entries


def test_a_question_that_comes_once_is_not_kept(engine: TorchEngine, tmp_path: Path) -> None:
    cache = cache_over(engine, disk(tmp_path))
    for seed in range(5):
        said(cache, SYSTEM, text(400, seed))
    assert entries(cache.store) == 1, "the System segment alone"


def test_what_two_questions_begin_with_is_kept_up_to_there(engine: TorchEngine, tmp_path: Path) -> None:
    cache, examples = cache_over(engine, disk(tmp_path)), text(300, 1)
    for seed in (2, 3):
        prompt = [SYSTEM, examples, text(300, seed)]
        said(cache, *prompt)
    assert stored(cache, prompt) == [True, True, False, False]


def test_questions_over_chunks_of_their_own_keep_nothing(engine: TorchEngine, tmp_path: Path) -> None:
    """Nor those over the same, whose KV is exact already."""
    cache = cache_over(engine, disk(tmp_path))
    list(cache.ingest(SYSTEM, DOCUMENT))
    there = entries(cache.store)
    for seed in range(3):
        said(cache, SYSTEM, *DOCUMENT, text(40, seed))
        said(cache, SYSTEM, DOCUMENT[0], DOCUMENT[2], text(40, seed))
    assert entries(cache.store) == there


def test_a_conversation_is_kept_from_its_second_question_on_with_its_answers(
    engine: TorchEngine, tmp_path: Path
) -> None:
    talk = Talk(cache_over(engine, disk(tmp_path)))
    talk.ask(text(150, 1))
    assert entries(talk.cache.store) == 1
    talk.ask(text(150, 2))
    whole = talk.prompt(text(30, 3))
    assert stored(talk.cache, whole) == [True] * 2
    answer, _ = said(talk.cache, *whole, tokens=70)
    assert stored(talk.cache, [*whole, Text(answer)]) == [True] * 3, "amid the answer"


def test_a_conversation_over_exact_passages(engine: TorchEngine, tmp_path: Path) -> None:
    cache = cache_over(engine, disk(tmp_path))
    list(cache.ingest(SYSTEM, DOCUMENT))
    talk = Talk(cache, (SYSTEM, *DOCUMENT))
    for seed in range(4):
        prompt = talk.ask(text(100, seed))
    assert stored(cache, prompt)[:3] == [False, False, True], "chunks serve the first"
    assert [bool(report.prefix_tokens) for report in talk.reports] == [False, False, True, True]
    plain = ChunkCache(engine, cache.store, "naive", keep_missed=False)
    plain.source = replace(plain.source, prefixes=None)
    assert same_bits(warm(cache, prompt), warm(plain, prompt))


@pytest.mark.parametrize("linker", ["naive", "auto", "fast", "cacheblend", "cci:ratio=1"])
def test_behind_an_approximate_passage_nothing_is_kept(engine: TorchEngine, tmp_path: Path, linker: str) -> None:
    """However much of it was computed again."""
    cache = cache_over(engine, disk(tmp_path), linker=linker)
    list(cache.ingest(SYSTEM, DOCUMENT))
    talk = Talk(cache, (SYSTEM, DOCUMENT[0], DOCUMENT[3], DOCUMENT[1]))
    for seed in range(3):
        prompt = talk.ask(text(200, seed))
    assert not any(stored(cache, prompt))
    assert talk.reports[-1].prefix_tokens == 0


def test_what_was_computed_is_kept_up_to_the_first_approximate_passage(engine: TorchEngine, tmp_path: Path) -> None:
    cache = cache_over(engine, disk(tmp_path))
    list(cache.ingest(SYSTEM, DOCUMENT))
    front = text(200, 7)
    talk = Talk(cache, (SYSTEM, front, DOCUMENT[1]))
    for seed in range(3):
        prompt = talk.ask(text(200, seed))
    assert stored(cache, prompt) == [True] + [False] * (len(blocks_of(cache, prompt)) - 1)


def test_over_a_system_segment_that_was_rounded_nothing_is_kept(engine: TorchEngine, tmp_path: Path) -> None:
    class Rounding(type(open_store(codec="raw"))):  # type: ignore[misc]
        def put(self, variant: Variant, *, wanted: bool = False) -> bool:
            own = rounded(variant, "int8") if variant.key.chunk == SYSTEM.hash else variant
            return bool(super().put(own, wanted=wanted))

    cache = cache_over(engine, Rounding(None))
    for _ in range(3):
        said(cache, *LONG)
    assert not any(stored(cache, LONG))


@pytest.mark.parametrize("linker", ["full"])
def test_the_null_linker_keeps_nothing(engine: TorchEngine, tmp_path: Path, linker: str) -> None:
    cache = cache_over(engine, disk(tmp_path), linker=linker)
    for _ in range(3):
        said(cache, *LONG)
    assert not any(stored(cache, LONG))


def test_a_long_front_is_kept_answer_by_answer(
    engine: TorchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_keeping, "AT_ONCE", 3)
    cache = cache_over(engine, disk(tmp_path))
    found = []
    for _ in range(4):
        _, report = said(cache, *LONG)
        found.append((report.prefix_tokens, sum(stored(cache, LONG))))
    assert found == [(0, 0), (0, 3), (3 * BLOCK - len(SYSTEM), 4), (4 * BLOCK - len(SYSTEM), 4)]


def test_the_keeper_does_it_when_nobody_waits(engine: TorchEngine, tmp_path: Path) -> None:
    keeper = Keeper()
    cache = ChunkCache(engine, disk(tmp_path), "naive", keeper=keeper)
    said(cache, *LONG)
    with keeper.answering():
        said(cache, *LONG)
        assert not any(stored(cache, LONG))
    keeper.settle()
    assert stored(cache, LONG) == [True] * 4
    keeper.close()


# -- bounds and faults -----------------------------------------------------------------------------------------------


def nbytes_of(folder: Path, engine: TorchEngine) -> int:
    found = CacheFolder(folder)
    keys = [(item, found.key(item)) for item in found.items()]
    return sum(item.nbytes for item, key in keys if key and key.fingerprint == prefix_name(engine.spec.fingerprint))


@pytest.mark.parametrize("ram", [0, 2_000_000])
def test_they_take_their_share_and_what_was_used_last_stays(engine: TorchEngine, tmp_path: Path, ram: int) -> None:
    block = BLOCK * engine.spec.token_bytes
    budget = int(5.8 * block / SHARE)
    cache = cache_over(engine, open_store(tmp_path, ram_bytes=ram, disk_bytes=budget, codec="raw"))
    chunks = list(cache.ingest(SYSTEM, DOCUMENT))
    prompts = [[SYSTEM, text(400, seed)] for seed in range(4)]
    for prompt in prompts:
        for _ in range(2):
            said(cache, *prompt)
        assert nbytes_of(tmp_path, engine) <= budget * SHARE
    assert all(stored(cache, prompts[-1]))
    assert not any(stored(cache, prompts[0]))
    assert all(cache.store.get(variant.key) for variant in chunks), "they pushed out no chunk"
    partly = stored(cache, prompts[-2])
    assert partly == sorted(partly, reverse=True), "of a chain the end goes first"
    cache.store.check_integrity()


def test_a_prompt_that_is_longer_than_the_share_is_kept_from_its_front(engine: TorchEngine, tmp_path: Path) -> None:
    budget = int(2.5 * BLOCK * engine.spec.token_bytes / SHARE)
    cache = cache_over(engine, open_store(tmp_path, ram_bytes=0, disk_bytes=budget, codec="raw"))
    for _ in range(4):
        said(cache, *LONG)
        assert nbytes_of(tmp_path, engine) <= budget * SHARE
    assert stored(cache, LONG) == [True, True, False, False]


def test_a_middle_block_that_was_evicted_is_made_again(engine: TorchEngine, tmp_path: Path) -> None:
    cache = cache_over(engine, disk(tmp_path))
    for _ in range(2):
        said(cache, *LONG)
    expected = warm(cache, LONG)
    cache.store.delete(blocks_of(cache, LONG)[1].key)
    found = warm(cache, LONG)
    assert found.report.prefix_tokens == BLOCK - len(SYSTEM)
    assert same_bits(found, expected)
    said(cache, *LONG)
    assert stored(cache, LONG) == [True] * 4
    assert same_bits(warm(cache, LONG), expected)


class Dying(RuntimeError):
    """As a process that is killed between two writes."""


def test_who_dies_between_two_blocks_leaves_a_chain_that_ends_sooner(
    engine: TorchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_over(engine, disk(tmp_path))
    said(cache, *LONG)
    put, left = cache.store.put, [2]

    def dies(variant: Variant) -> bool:
        if not left[0]:
            raise Dying
        left[0] -= 1
        return put(variant)

    monkeypatch.setattr(cache.store, "put", dies)
    _, report = said(cache, *LONG)
    assert any("Dying" in told for told in report.incidents)
    assert stored(cache, LONG) == [True, True, False, False]
    again = cache_over(engine, disk(tmp_path))
    expected = warm(cache_over(engine, open_store(codec="raw")), LONG)
    assert warm(again, LONG).report.prefix_tokens == 2 * BLOCK - len(SYSTEM)
    assert same_bits(warm(again, LONG), expected)


def test_a_full_store_is_told_and_not_asked_for_each_prompt(
    engine: TorchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_over(engine, disk(tmp_path))
    said(cache, *LONG)
    asked = []

    def full(variant: Variant) -> None:
        asked.append(variant)
        raise StoreError("no room")

    monkeypatch.setattr(cache.store, "put", full)
    answers = [said(cache, *LONG) for _ in range(prefix_keeping.RETRY + 2)]
    assert [len(report.incidents) for _, report in answers] == [1, *[0] * prefix_keeping.RETRY, 1]
    assert len(asked) == 2
    assert len({answer for answer, _ in answers}) == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch, engine: TorchEngine) -> None:
    monkeypatch.setattr(prefix_keeping, "BLOCKS", 7)
    monkeypatch.setattr(prefix_keeping, "ENDS", 3)
    cache, met = cache_over(engine, open_store(codec="raw")), Recurrence()

    def meet(prompt: Sequence[Segment]) -> tuple[int, bool]:
        return met.met(prompt, blocks_of(cache, prompt))

    for seed in range(9):
        assert meet([SYSTEM, text(300, seed)]) == (0, False)
        met.check_integrity()
    assert meet([SYSTEM, text(300, 8)]) == (2, False), "the same again goes on from nothing"
    assert meet([SYSTEM, text(300, 0)]) == (0, False), "forgotten"
    assert meet([SYSTEM, text(300, 8), text(1, 1)]) == (2, True)


def test_a_block_is_what_a_prefill_holds(engine: TorchEngine, tmp_path: Path) -> None:
    """K as it stands at its positions."""
    cache = cache_over(engine, disk(tmp_path))
    for _ in range(2):
        said(cache, *LONG)
    plain = warm(cache_over(engine, open_store(codec="raw")), LONG)
    for block in blocks_of(cache, LONG):
        found = cache.store.get(block.key)
        assert found is not None
        assert found.variant.ids == block.ids
        span, own = slice(max(len(SYSTEM), block.span.start), block.span.end), max(0, len(SYSTEM) - block.span.start)
        torch.testing.assert_close(found.variant.k[:, :, own:], plain.buffer.k[:, :, span], rtol=0, atol=0)
        torch.testing.assert_close(found.variant.v[:, :, own:], plain.buffer.v[:, :, span], rtol=0, atol=0)
