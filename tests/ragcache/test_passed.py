"""What was cached, and computed all the same since that was sooner."""

from __future__ import annotations

from typing import Any

import pytest

from ragcache.cache import ChunkCache
from ragcache.keeping import Keeper, Task
from ragcache.loader.sequential import SequentialLoader
from ragcache.policy import Rates, Work
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Chunk, Segment
from tests.tiny import Tiny, make_chunks, make_question, make_system

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(40, 31, 38)
(STRANGER,) = make_chunks(27, seed=5)


class SlowToLink(Rates):
    """A link takes longer than any computation."""

    def seconds(self, work: Work) -> float:
        return work.placed


class CountingKeeper(Keeper):
    def __init__(self) -> None:
        super().__init__()
        self.tasks = 0

    def later(self, task: Task) -> None:
        self.tasks += 1


def prompt(*chunks: Chunk) -> list[Segment]:
    return [SYSTEM, *chunks, QUESTION]


@pytest.mark.parametrize("settings", [{"rates": SlowToLink()}, {"loader": SequentialLoader(front=2)}])
@pytest.mark.parametrize(
    ("chunks", "captures"), [(DOCUMENT[:2], 0), ([*DOCUMENT[:2], STRANGER], 1), (DOCUMENT[1:], 1), (DOCUMENT[:1], 0)]
)
def test_a_capture_is_queued_for_what_is_lacking_alone(
    tiny: Tiny, settings: dict[str, Any], chunks: list[Chunk], captures: int
) -> None:
    """Of the second chunk of a document there is no variant yet that could lead a prompt."""
    keeper = CountingKeeper()
    cache = ChunkCache(tiny.engine, open_store(codec="raw"), "naive", keeper=keeper, **settings)
    list(cache.ingest(SYSTEM, DOCUMENT))
    answer = cache.generate(prompt(*chunks), max_tokens=1)
    list(answer)
    assert answer.report.chunks[0].tier == COMPUTED
    assert keeper.tasks == captures


@pytest.mark.parametrize("settings", [{"rates": SlowToLink()}, {"loader": SequentialLoader(front=1)}])
def test_it_counts_as_used(tiny: Tiny, settings: dict[str, Any]) -> None:
    unbounded = ChunkCache(tiny.engine, open_store(codec="raw"), context_chunks=0)
    first, second, third = unbounded.ingest(SYSTEM, DOCUMENT)
    lead = unbounded.system_variant(SYSTEM)
    room = sum(one.nbytes + one.profile.nbytes for one in (lead, first, second, third))
    store = open_store(ram_bytes=room, codec="raw", order="lru")
    for variant in (lead, first, second, third):
        store.put(variant)
    cache = ChunkCache(tiny.engine, store, "naive", context_chunks=0, keep_missed=False, **settings)
    answer = cache.generate(prompt(DOCUMENT[0]), max_tokens=1)
    assert answer.report.chunks[0].tier == COMPUTED
    store.put(unbounded.kvgen.capture(lead, [], STRANGER))
    assert [store.open(one.key) is not None for one in (first, second)] == [True, False]
