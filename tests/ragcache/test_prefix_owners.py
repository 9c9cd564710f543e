"""A stored prefix is its texts': it goes with them, and who may not see them finds nothing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ragcache.address import prefix_name
from ragcache.engine.torch.engine import TorchEngine
from ragcache.prefix import BLOCK
from ragcache.store import open_store
from ragcache.together import Together
from ragcache.types import Chunk, Segment, System, Text
from tests.prefixes import DEPTH, SYSTEM, Talk, blocks_of, cache_over, disk, said, stored, text, warm
from tests.tiny import draw, make_chunks, make_tiny

DOCUMENT = make_chunks(90, 130, 75, 60)
(STRANGER,) = make_chunks(150, seed=5)


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return make_tiny(max_position_embeddings=2048).engine


def test_a_deleted_text_takes_the_blocks_that_saw_it(engine: TorchEngine, tmp_path: Path) -> None:
    """Those before it stay, and those of other prompts."""
    cache = cache_over(engine, open_store(tmp_path, codec="raw"))
    talk, other = Talk(cache, (SYSTEM, text(240, 9), STRANGER)), Talk(cache, (SYSTEM, text(240, 8)))
    for seed in range(3):
        prompt, apart = talk.ask(text(100, seed)), other.ask(text(100, seed))
        # Evicted each time, or it would be linked from the second question on: behind a text it is not exact.
        cache.store.drop_chunk(engine.spec.fingerprint, SYSTEM.hash, STRANGER.hash)
    assert all(stored(cache, prompt)[:4])
    gone = cache.store.drop_seeing([STRANGER.hash])
    assert stored(cache, prompt) == [True, True] + [False] * (len(blocks_of(cache, prompt)) - 2)
    assert all(stored(cache, apart)[:4])
    assert {key.fingerprint for key in gone} == {prefix_name(engine.spec.fingerprint)}
    assert warm(cache, prompt).report.prefix_tokens == 2 * BLOCK - len(SYSTEM)


def test_a_block_across_the_end_of_a_chunk_has_seen_it(engine: TorchEngine) -> None:
    cache = cache_over(engine, open_store(codec="raw"))
    blocks = blocks_of(cache, [SYSTEM, DOCUMENT[0], text(5, 1), DOCUMENT[1], text(200, 2)])
    assert [block.seen for block in blocks] == [(DOCUMENT[0].hash, DOCUMENT[1].hash)] * 3
    blocks = blocks_of(cache, [SYSTEM, text(101, 1), DOCUMENT[1], text(200, 2)])
    assert [block.seen for block in blocks] == [(), *[(DOCUMENT[1].hash,)] * 2]


def test_a_border_holds(engine: TorchEngine, tmp_path: Path) -> None:
    """From where something within it was seen; what stands before that is everybody's."""

    def prompt(border: str) -> list[Segment]:
        return [SYSTEM, text(200, 1), text(150, 3, border), text(200, 2)]

    cache = cache_over(engine, disk(tmp_path))
    for _ in range(2):
        said(cache, *prompt("ann"))
    found = [block.key.border for block in blocks_of(cache, prompt("ann"))]
    assert found == ["", "ann", "ann", "ann"]
    known = {border: warm(cache, prompt(border)).report.prefix_tokens for border in ("ann", "bob", "")}
    assert known == {"ann": 4 * BLOCK - len(SYSTEM), "bob": BLOCK - len(SYSTEM), "": BLOCK - len(SYSTEM)}


def test_what_was_asked_within_another_border_is_no_earlier_turn(engine: TorchEngine, tmp_path: Path) -> None:
    """Else what is kept of a prompt would tell that somebody else has asked its beginning."""
    cache = cache_over(engine, disk(tmp_path))
    first, more = text(200, 1, "ann"), text(300, 2)
    said(cache, SYSTEM, first)
    longer = {border: [SYSTEM, replace(first, border=border), more] for border in ("bob", "", "ann")}
    kept = {border: said(cache, *prompt) and any(stored(cache, prompt)) for border, prompt in longer.items()}
    assert kept == {"bob": False, "": False, "ann": True}


def test_an_end_is_within_the_borders_of_what_stands_before_it(engine: TorchEngine, tmp_path: Path) -> None:
    """However it is cut, and whatever comes behind it."""
    cache = cache_over(engine, disk(tmp_path))
    said(cache, SYSTEM, text(200, 1))
    prompt = [SYSTEM, *(Text(text(200, 1).ids[part]) for part in (slice(90), slice(90, None))), text(150, 2, "ann")]
    said(cache, *prompt)
    assert stored(cache, prompt)[:2] == [True, True]


def test_nothing_is_kept_of_what_has_seen_a_system_text_of_somebodys_own(engine: TorchEngine, tmp_path: Path) -> None:
    """It is his alone, and the borders of what stands behind it are others' too."""
    cache, own = cache_over(engine, disk(tmp_path)), System(draw(27, 77))
    prompt = [own, text(400, 1, "ann")]
    for _ in range(3):
        list(cache.generate(prompt, max_tokens=DEPTH, behind=SYSTEM, owner="ann"))
    assert not any(stored(cache, prompt))
    assert warm(cache, prompt).report.prefix_tokens == 0


def test_answers_to_one_prompt_are_no_turns_of_each_other(engine: TorchEngine, tmp_path: Path) -> None:
    """It has come once, and what comes once is not kept."""
    cache, prompt = cache_over(engine, disk(tmp_path)), [SYSTEM, text(400, 1)]
    together = Together(3)
    for _ in range(3):
        list(cache.generate(prompt, max_tokens=DEPTH, together=together))
    assert not any(stored(cache, prompt))
    said(cache, *prompt)
    assert any(stored(cache, prompt))


def test_where_two_borders_meet_nothing_is_kept(engine: TorchEngine, tmp_path: Path) -> None:
    cache = cache_over(engine, disk(tmp_path))
    prompt = [SYSTEM, text(200, 1, "ann"), text(300, 2, "bob")]
    for _ in range(2):
        said(cache, *prompt)
    assert [block.key.border for block in blocks_of(cache, prompt)] == ["ann"]
    assert warm(cache, prompt).report.prefix_tokens == BLOCK - len(SYSTEM)


def test_more_chunks_than_a_lineage_tells_end_it(engine: TorchEngine) -> None:
    cache = cache_over(engine, open_store(codec="raw"))
    many = [Chunk(draw(2, 10_000 + place)) for place in range(300)]
    blocks = blocks_of(cache, [SYSTEM, *many])
    assert 3 * BLOCK < blocks[-1].span.end <= len(SYSTEM) + 2 * 256
