"""Memory that files are read into is lent again, and only when nobody holds any of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from ragcache.store.memory import HUGE, AreaPool, room


def place(memory: memoryview) -> int:
    return torch.frombuffer(memory, dtype=torch.uint8).data_ptr()


def test_an_area_comes_back_when_no_part_of_it_is_held() -> None:
    areas = AreaPool()
    area = areas.lend(HUGE)
    where = place(area)
    part = torch.frombuffer(area[64:128], dtype=torch.float32)[3:]
    del area
    assert areas.free == 0
    other = areas.lend(HUGE)
    assert place(other) != where
    del part
    assert areas.free == HUGE
    again = areas.lend(HUGE - 100)
    assert place(again) == where
    assert len(again) == HUGE - 100
    del other, again


def test_much_more_than_is_asked_for_is_not_given() -> None:
    areas = AreaPool()
    areas.lend(2 * HUGE)
    assert areas.free == 2 * HUGE
    assert len(areas.lend(HUGE)) == HUGE
    assert areas.free == 3 * HUGE


def test_no_more_is_kept_than_is_allowed() -> None:
    areas = AreaPool(kept=3 * HUGE)
    held = [areas.lend(HUGE) for _ in range(8)]
    held.clear()
    assert areas.free == 3 * HUGE
    too_large = areas.lend(4 * HUGE)
    del too_large
    assert areas.free <= 3 * HUGE


def test_threads_never_have_one_at_once() -> None:
    areas = AreaPool(kept=5 * HUGE)

    def read(number: int) -> bool:
        area = np.frombuffer(areas.lend(HUGE), np.int64)
        area[:] = number
        return bool((area == number).all())

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(read, range(300)))
    assert 0 < areas.free <= 5 * HUGE


def test_little_memory_is_ordinary() -> None:
    assert len(room(100)) == 100
    assert place(room(HUGE)) % 64 == 0
