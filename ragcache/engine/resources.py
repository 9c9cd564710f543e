"""What computations take: memory that comes back, and as many threads as cores are free of other programs.

OpenMP cuts each of a forward's hundreds of operations into equal parts, one for each thread, and waits for the last.
With as many threads as cores, and others busy on these, some thread always waits for its turn: an answer then takes
ten times as long and more, where fewer threads lose no more than their own share (docs/log.md).
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import torch

from ragcache.host import allowed

STAT = Path("/proc/stat")
WINDOW_S = 0.25  # between two looks: the system counts in hundredths of a second
SLACK = 0.3  # of a core that others may use before it counts as taken
STEPS = 8  # sizes between two powers of two: the next prompt is seldom just as long
LOANS = 32  # a block that was larger than so many prompts in a row needed is not kept


@dataclass(frozen=True)
class CoreUsage:
    """Seconds of the cores that this process may run on, since the machine started."""

    busy: float
    own: float  # of this process, all of its threads together


class FreeCores:
    """Threads may share it. Where the system does not tell who computes, all cores are free."""

    def __init__(self, usage: Callable[[], CoreUsage | None] | None = None, clock: Callable[[], float] = monotonic):
        self._usage = usage or read_usage
        self._clock = clock
        self._lock = threading.Lock()
        self._last, self._since = self._usage(), clock()
        self._allowed = len(allowed())
        self._most = torch.get_num_threads()
        self._lent: set[int] = set()  # numbers, ever
        self._met = threading.local()
        self._others = 0.0  # cores that other programs used, of late

    def threads(self, most: int) -> int:
        """That a computation which could use `most` of them should use now."""
        with self._lock:
            now = self._clock()
            if now - self._since >= WINDOW_S:
                usage = self._usage()
                if usage is not None and self._last is not None:
                    others = (usage.busy - self._last.busy) - (usage.own - self._last.own)
                    self._others = max(0.0, others / (now - self._since))
                self._last, self._since = usage, now
                self._allowed = len(allowed())
            return max(1, min(most, int(max(most, self._allowed) - self._others + SLACK)))

    @contextmanager
    def lent(self) -> Iterator[None]:
        """What this thread computes with torch inside uses the free ones."""
        before = torch.get_num_threads()
        own = self._own(before)
        wanted = self.threads(own)
        if wanted == own == before:
            yield
            return
        self._lent.add(wanted)
        torch.set_num_threads(wanted)
        try:
            yield
        finally:
            torch.set_num_threads(own)

    def _own(self, told: int) -> int:
        """Threads that this one computes with by itself, where torch told so many. To one that first computed while
        another was lent fewer, torch tells those for as long as it lives.
        """
        first, self._met.ever = not hasattr(self._met, "ever"), True
        return max(told, self._most) if first and told in self._lent else told


def read_usage() -> CoreUsage | None:
    """As Linux counts it; None elsewhere."""
    try:
        lines = [line.split() for line in STAT.read_text("ascii").splitlines() if line.startswith("cpu")]
        own = {f"cpu{number}" for number in allowed()}
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return None
    # user nice system idle iowait irq softirq steal: what a hypervisor takes is taken by others too.
    busy = sum(int(value) for name, *values in lines if name in own for value in (*values[:3], *values[5:8]))
    times = os.times()
    return CoreUsage(busy / ticks, times.user + times.system)


def synchronize(device: torch.device) -> None:
    """Wait until what was launched there is done: an accelerator runs behind."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Memory:
    """Keeps the largest block that came back, and lends it again: one at most, no larger than the last LOANS prompts
    needed. Threads may share it.

    A block belongs to whoever has taken it off `_free`, which is one step of the interpreter, as is putting it back. A
    lock would not do: what gives back runs wherever Python collects garbage, so also inside of whoever holds the lock.
    """

    def __init__(self) -> None:
        self._free: deque[torch.Tensor] = deque(maxlen=1)  # a second block pushes the first out
        self._asked: tuple[int, ...] = ()  # bytes, of the last loans; one that two threads lose does no harm

    def take(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A tensor that is not initialised. Its memory comes back by itself, when no tensor views it any more."""
        if device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=device)  # torch keeps such memory itself
        nbytes = math.prod(shape) * dtype.itemsize
        self._asked = (*self._asked, nbytes)[-LOANS:]
        block = self._block(nbytes)
        # Tensors made from an array hold it until the last of them is gone, and this array is new each time.
        lease = block.numpy()
        weakref.finalize(lease, self._give_back, block).atexit = False
        return torch.from_numpy(lease)[:nbytes].view(dtype).view(*shape)

    def _block(self, nbytes: int) -> torch.Tensor:
        block = self._taken()
        return block if block is not None and len(block) >= nbytes else _fresh(nbytes)

    def _give_back(self, block: torch.Tensor) -> None:
        kept = self._taken()
        largest = block if kept is None else max(block, kept, key=len)
        if len(largest) <= _rounded(max(self._asked)):
            self._free.append(largest)

    def _taken(self) -> torch.Tensor | None:
        try:
            return self._free.pop()
        except IndexError:
            return None


def _rounded(nbytes: int) -> int:
    step = 1 << max(0, nbytes.bit_length() - STEPS.bit_length())
    return -(-nbytes // step) * step


def _fresh(nbytes: int) -> torch.Tensor:
    return torch.empty(_rounded(nbytes), dtype=torch.uint8)
