"""What libraries keep of a process's memory, bounded for one that runs for long.

oneDNN keeps a kernel for each shape that it multiplied, up to 1,024, and torch's bridge to it (ideep) as many more
for each thread. Prompts are seldom of one length, so both fill: with half a gigabyte, and with pieces that lie among
what is free. glibc lets threads allocate in eight arenas for each core, and what one has free no other gets.
"""

from __future__ import annotations

import ctypes

from app.settings import default_variables

ARENAS = "MALLOC_ARENA_MAX"
# A pass of rows needs four kernels for its length, all of its layers the same. So 128 do for 16 answers at once
# (RAGCACHE_SERVE_CONCURRENT) and for the texts that are embedded beside them, 32 for one thread.
BOUNDS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128", "LRU_CACHE_CAPACITY": "32", ARENAS: "2"}
_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def bound_libraries() -> None:
    """Before torch computes and threads are many; processes that this one starts inherit it. What is in the environment
    already stays as it is.
    """
    if ARENAS in default_variables(BOUNDS):
        _bound_arenas(int(BOUNDS[ARENAS]))


def _bound_arenas(most: int) -> None:
    """glibc read the environment when this process began. Other libraries have no arenas to bound, or no such call."""
    try:
        ctypes.CDLL(None).mallopt(_ARENA_MAX, most)
    except (OSError, TypeError, AttributeError):
        return
