"""On a CPU one thread of the process, the engine's, computes on all cores; the others on one each.

OpenMP lets a thread's helpers wait awake for their next piece of work only while those of all threads together are no
more than the cores. Once another thread of the process has helpers too, for an encoder or a codec, each of the
hundreds of operations of a forward waits until one wakes up, which costs a short forward half its time again.
"""

from __future__ import annotations

from torch import get_num_threads, set_num_threads  # imported early: vLLM's CPU worker replaces torch's attribute
from vllm.platforms import current_platform

from ragcache.engine.resources import FreeCores


class Cores:
    """As many as the thread that opens the engine had."""

    def __init__(self) -> None:
        self._count = self._used = get_num_threads()
        self._free = FreeCores()

    def take(self) -> None:
        """This thread computes on all of them."""
        self._used = self._count
        set_num_threads(self._count)

    def share(self) -> None:
        """This thread, which has taken them, leaves those to other programs that they compute on."""
        if current_platform.is_cpu() and (wanted := self._free.threads(self._count)) != self._used:
            self._used = wanted
            set_num_threads(wanted)


def leave_cores() -> None:
    """From now on this thread, and every one that begins later, computes on one core."""
    if current_platform.is_cpu():
        set_num_threads(1)
