"""What holds a process that reads files: memory, seconds of a core, and its end with its parent's."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

LEAST_MEMORY = 1 << 30  # bytes; the libraries that read formats take some of it themselves
OUT_OF_MEMORY = 77  # the exit status of a process that has no room even for its answer
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


def confine(parent: int, memory: int) -> None:
    """Of this process, whose parent has this id, and which may take so many bytes of memory."""
    end_with(parent)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    allowed = memory if most == resource.RLIM_INFINITY else min(memory, most)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, most))


def confine_time(seconds: float) -> None:
    """Of the cores, from now on. It holds where no parent is left to end the process, also amid a call into C."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def seal() -> None:
    """What `confine` and `confine_time` have set, nobody in this process raises again; and it starts no other, unless
    it is root's.
    """
    for limit, more in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_CPU, 1)):  # so that SIGXCPU comes before SIGKILL
        soft, most = resource.getrlimit(limit)
        resource.setrlimit(limit, (soft, soft + more if most == resource.RLIM_INFINITY else min(soft + more, most)))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def end_with(parent: int, how: signal.Signals = signal.SIGKILL) -> None:
    """The kernel kills us when our parent ends, in whatever we are: a pattern that is searched for runs no Python.

    Only Linux can. Elsewhere the process sees the end of its input when it has read its file, and `confine_time` ends
    it before that where the file takes for ever. The signal comes with the end of the *thread* that started us: the
    readers' threads live as long as the readers.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, how, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)
