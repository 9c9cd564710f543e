"""Memory for the KV of one prompt after the other.

The system hands out fresh memory page by page, at the first touch: thousands of faults for a prompt's KV, which take
as long as placing its caches does, and in a virtual machine many times that. Memory that was touched before has none.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

import torch

STEPS = 8  # sizes between two powers of two: the next prompt is seldom just as long


class Memory:
    """Keeps the largest block that came back, and lends it again. Threads may share it."""

    def __init__(self) -> None:
        self._free: list[torch.Tensor] = []  # one at most, but for an instant

    def take(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A tensor that is not initialised. Its memory comes back by itself, when no tensor views it any more."""
        if device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=device)  # torch keeps such memory itself
        nbytes = math.prod(shape) * dtype.itemsize
        block = self._block(nbytes)
        # Tensors made from an array hold it until the last of them is gone, and this array is new each time.
        lease = block.numpy()
        weakref.finalize(lease, self._give_back, block).atexit = False
        return torch.from_numpy(lease)[:nbytes].view(dtype).view(*shape)

    def _block(self, nbytes: int) -> torch.Tensor:
        try:
            block = self._free.pop()
        except IndexError:
            return _fresh(nbytes)
        return block if len(block) >= nbytes else _fresh(nbytes)

    def _give_back(self, block: torch.Tensor) -> None:
        # Each line is one step for all threads; what two of them give back at once is at worst not kept.
        self._free.append(block)
        self._free[:] = sorted(self._free, key=len)[-1:]


def _fresh(nbytes: int) -> torch.Tensor:
    step = 1 << max(0, nbytes.bit_length() - STEPS.bit_length())
    return torch.empty(-(-nbytes // step) * step, dtype=torch.uint8)
