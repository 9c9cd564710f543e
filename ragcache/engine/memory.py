"""Memory for the KV of one prompt after the other.

The system hands out fresh memory page by page, at the first touch: thousands of faults for a prompt's KV, which take
as long as placing its caches does, and in a virtual machine many times that. Memory that was touched before has none.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Sequence

import torch

STEPS = 8  # sizes between two powers of two: the next prompt is seldom just as long
LOANS = 32  # a block that was larger than so many prompts in a row needed is not kept


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
