"""On a CPU one thread of the process, the engine's, computes on all cores; the others on one each.

OpenMP lets a thread's helpers wait awake for their next piece of work only while those of all threads together are no
more than the cores. Once another thread of the process has helpers too, for an encoder or a codec, each of the
hundreds of operations of a forward waits until one wakes up, which costs a short forward half its time again.
"""

from __future__ import annotations

from torch import get_num_threads, set_num_threads  # imported early: vLLM's CPU worker replaces torch's attribute
from vllm.platforms import current_platform


class Cores:
    """As many as the thread that opens the engine had."""

    def __init__(self) -> None:
        self._count = get_num_threads()

    def take(self) -> None:
        """This thread computes on all of them."""
        set_num_threads(self._count)


def leave_cores() -> None:
    """From now on this thread, and every one that begins later, computes on one core."""
    if current_platform.is_cpu():
        set_num_threads(1)
