"""Memory that files are read into."""

from __future__ import annotations

import mmap
from contextlib import suppress

import torch

HUGE = 2 << 20  # bytes of a page that a processor has one entry for


def room(size: int) -> memoryview:
    """Memory that is aligned to 64 bytes, and with it every section, and that nothing was written to. Much of it comes
    in huge pages where the system has them: to be given small ones takes three times as long as the reading itself.
    """
    if size < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8).numpy().data
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        area.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(area)
