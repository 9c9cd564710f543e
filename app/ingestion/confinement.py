"""What holds a reading process: memory that it cannot exceed, and an end when nobody waits for it any more."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import sys
from pathlib import Path

from app.loaders.base import MEGABYTE

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux
STATUS = Path("/proc/self/status")  # tells no peak in gVisor, and is not there where /proc is not mounted
NEAR = 0.8  # of the memory that a process may take
LEAST_MEMORY = 1 << 30  # bytes; the libraries that read formats take some of it themselves


def confine(parent: int, memory: int) -> None:
    """Of this process, whose parent has this id, and which may take so many bytes of memory."""
    _end_with(parent)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    allowed = memory if most == resource.RLIM_INFINITY else min(memory, most)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, most))


def confine_time(seconds: float) -> None:
    """Of the cores, from now on. It holds where no parent is left to end the process, also amid a call into C."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def memory_for(limit: int, processes: int) -> int:
    """For each of them: all together take no more than half of the machine."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(limit, max(physical // 2 // processes, LEAST_MEMORY))


def memory_told() -> str:
    """How much this process may take, in words."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return "there is" if limit == resource.RLIM_INFINITY else f"the {limit / MEGABYTE:,.0f} MB that it may take"


def near_the_limit() -> bool:
    """Whether this process has ever been: a library that gets no memory may tell of anything else."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or sys.platform != "linux":
        return False
    try:
        told = re.findall(rb"^Vm(?:Peak|Size):\s*(\d+) kB", STATUS.read_bytes(), re.MULTILINE)
    except OSError:
        return False
    return max(map(int, told), default=0) * 1024 >= NEAR * limit


def _end_with(parent: int) -> None:
    """The kernel kills us when our parent ends, in whatever we are: a pattern that is searched for runs no Python.

    Only Linux can. Elsewhere the process sees the end of its input when it has read its file, and `confine_time` ends
    it before that where the file takes for ever. The signal comes with the end of the *thread* that started us: the
    readers' threads live as long as the readers.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)
