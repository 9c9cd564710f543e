"""What tests ask of a vLLM engine inside this process, between two of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def drain(engine: Any) -> None:
    """Wait until vLLM has nothing left to do, not even for requests that were aborted."""
    while engine._ask(engine._scheduler.has_requests):
        pass


def free_blocks(engine: Any) -> int:
    """Of the paged cache."""
    free: int = engine._ask(lambda: int(engine._scheduler.kv_cache_manager.block_pool.get_num_free_blocks()))
    return free


def room_bytes(worker: Any) -> int:
    """Of all requests that load."""
    return sum(linking.room.nbytes for linking in worker._linkings.values())


@contextmanager
def left_as_found(engine: Any) -> Iterator[None]:
    """With an empty prefix cache; nothing of what is asked meanwhile stays."""
    drain(engine)
    engine.forget_prefixes()
    blocks = free_blocks(engine)
    yield
    drain(engine)
    engine.check_integrity()
    assert free_blocks(engine) == blocks
    assert room_bytes(engine._worker) == 0
    assert not engine._worker._fetched._begun
    assert not engine._worker._storing.awaited


def is_waiting(scheduler: Any) -> bool:
    """Whether a LinkScheduler still has something to do."""
    return bool(scheduler._jobs or scheduler._finishing or scheduler._failing or scheduler._plans)
