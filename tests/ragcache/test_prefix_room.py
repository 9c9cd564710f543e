"""What a keep takes: rows, and room that others leave before the chain itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragcache import prefix_keeping
from ragcache.engine.torch.engine import TorchEngine
from ragcache.prefix import BLOCK
from ragcache.prefix_keeping import SHARE
from ragcache.store import open_store
from tests.prefixes import SYSTEM, Talk, blocks_of, cache_over, disk, said, same_bits, stored, text, warm
from tests.tiny import make_tiny


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return make_tiny(max_position_embeddings=2048).engine


def test_a_chain_longer_than_the_share_stays_as_it_is(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_keeping, "AT_ONCE", 2)
    budget = int(5.5 * BLOCK * engine.spec.token_bytes / SHARE)
    cache, prompt = cache_over(engine, open_store(ram_bytes=budget, codec="raw")), [SYSTEM, text(1300, 1)]
    counts = []
    for _ in range(7):
        said(cache, *prompt, tokens=1)
        found = stored(cache, prompt)
        assert found == sorted(found, reverse=True), "from its front"
        counts.append(sum(found))
    assert counts[1:] == [2, 4, 4, 4, 4, 4]


def test_a_gap_at_the_front_is_closed_within_the_rows_of_one_keep(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_keeping, "AT_ONCE", 2)
    cache, prompt = cache_over(engine, open_store(codec="raw")), [SYSTEM, text(1000, 1)]
    for _ in range(6):
        said(cache, *prompt, tokens=1)
    blocks, rows, compute = blocks_of(cache, prompt), [0], TorchEngine.compute_patiently
    for block in (blocks[0], blocks[-1]):
        cache.store.delete(block.key)

    def counted(self: TorchEngine, ids: list[int], *rest: object, **named: object) -> None:
        rows.append(len(ids))
        compute(self, ids, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(TorchEngine, "compute_patiently", counted)
    for _ in range(2):
        said(cache, *prompt, tokens=1)
    assert all(stored(cache, prompt))
    assert 0 < max(rows) <= 2 * BLOCK


def test_room_is_made_once_for_a_keep(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the headers of its blocks take, so that nothing is left to be done after it."""
    budget = int(4.7 * BLOCK * engine.spec.token_bytes / SHARE)
    cache = cache_over(engine, open_store(ram_bytes=budget, codec="raw"))
    trim, asked = cache.store.trim, []

    def counted(*of: object) -> None:
        asked.append(of)
        trim(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(cache.store, "trim", counted)
    for seed in range(3):
        prompt = [SYSTEM, text(450, seed)]
        for _ in range(2):
            said(cache, *prompt, tokens=1)
        assert stored(cache, prompt) == [True] * 3
    assert len(asked) == 3
    assert cache.store.kept.evictions == 0, "what makes room within a share is not evicted for want of room"
    assert cache.store.kept.entries == 1 + 1 + 3, "the System segment, one of before, and the last"


def test_nobody_goes_on_from_the_system_segment_alone(engine: TorchEngine) -> None:
    cache, prompt = cache_over(engine, open_store(codec="raw")), [SYSTEM, text(600, 1)]
    said(cache, SYSTEM, tokens=1)
    said(cache, *prompt, tokens=1)
    assert not any(stored(cache, prompt))


def test_conversations_reuse_the_answers_that_came_before(engine: TorchEngine, tmp_path: Path) -> None:
    talk = Talk(cache_over(engine, disk(tmp_path)))
    for turn in range(6):
        prompt = talk.ask(text(120, turn))
        found, expected = (
            warm(talk.cache, prompt),
            warm(cache_over(engine, open_store(codec="raw")), prompt),
        )
        assert same_bits(found, expected)
    known = [report.prefix_tokens for report in talk.reports]
    left = [report.prompt_tokens - len(SYSTEM) - tokens for report, tokens in zip(talk.reports, known, strict=True)]
    assert known[:2] == [0, 0], "only the second shows that it is a conversation"
    assert max(left[2:]) <= 120 + BLOCK, left
