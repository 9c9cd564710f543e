"""Memory that files are read into."""

from __future__ import annotations

import logging
import mmap
from contextlib import suppress
from weakref import finalize

import numpy as np
import torch

logger = logging.getLogger(__name__)

HUGE = 2 << 20  # bytes of a page that a processor has one entry for
KEPT = 256 << 20  # bytes that stay when nobody needs them
PINNED = 1 << 30  # bytes at most that are lent pinned: the system can neither swap nor reclaim them
SPARE = 1 + 1 / 16  # times as much as is asked for may be given


class AreaPool:
    """Areas that come back once nobody holds any part of them, and are lent again: to be given new memory by the system
    takes longer than the reading itself. There is no lock, since they come back wherever Python collects garbage, also
    inside of whoever would hold it. So the list may change under whoever reads it; it is never copied whole, which
    Python 3.11 does not survive then.
    """

    def __init__(self, kept: int = KEPT):
        self._kept = kept
        self._free = list[mmap.mmap]()  # first those that came back first
        self.pinned = False  # a GPU is to read it by itself
        self._pins = list[int]()  # bytes of each area that is lent pinned

    def lend(self, size: int) -> memoryview:
        """Whoever had it before has left its bytes there."""
        if self.pinned and (pinned := self._pinned(size)) is not None:
            return pinned
        fitting = [area for area in self._free if size <= len(area) <= size * SPARE]
        for area in sorted(fitting, key=len):
            with suppress(ValueError):  # another thread was quicker
                self._free.remove(area)
                return self._lent(area, size)
        return self._lent(_mapped(size), size)

    def _pinned(self, size: int) -> memoryview | None:
        """torch lends it again by itself. None where there is enough of it."""
        if sum(self._pins) + size > PINNED:
            return None
        try:
            area = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
        except RuntimeError as error:  # a limit of locked memory, or none left
            self.pinned = False
            logger.warning("files are read into ordinary memory, from which a GPU has them later: %s", error)
            return None
        self._pins.append(size)
        finalize(area, self._pins.remove, size).atexit = False
        return area.data

    def _lent(self, area: mmap.mmap, size: int) -> memoryview:
        whole = np.frombuffer(area, np.uint8)  # all parts, tensors among them, hold it
        finalize(whole, self._come_back, area).atexit = False
        return whole.data[:size]

    def _come_back(self, area: mmap.mmap) -> None:
        self._free.append(area)
        while sum(map(len, self._free)) > self._kept:
            with suppress(IndexError):
                self._free.pop(0)

    @property
    def free(self) -> int:
        """Bytes."""
        return sum(map(len, self._free))


def _mapped(size: int) -> mmap.mmap:
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        area.madvise(mmap.MADV_HUGEPAGE)
    return area


AREAS = AreaPool()


def room(size: int) -> memoryview:
    """Memory that is aligned to 64 bytes, and with it every section, of which the caller writes every byte. Much of it
    comes in huge pages where the system has them: to be given small ones takes three times as long as the reading.
    """
    if size < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8).numpy().data
    return AREAS.lend(size)
