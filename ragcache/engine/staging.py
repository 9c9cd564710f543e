"""KV on its way to a GPU, through memory that it reads by itself."""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import replace

import torch

from ragcache.loader import Block
from ragcache.store.memory import AREAS

logger = logging.getLogger(__name__)

HALF_BYTES = 8 << 20  # of the stage: small enough that a processor's cache has what is sent
LEAST_BYTES = 1 << 20  # less is sooner sent as it is


class Stage:
    """Copies blocks to one device. Threads may share it.

    A driver copies ordinary memory through pages of its own, on one core. Here all of torch's threads fill one half of
    memory that stays pinned while the other is being sent, so that neither waits for the other (docs/benchmarks.md).
    What is read of files lies in pinned memory itself, and is sent as it is: to copy it here would take the cores from
    those that read.
    """

    def __init__(self, device: torch.device, half_bytes: int = HALF_BYTES):
        self._device, self._half_bytes = device, half_bytes
        self._lock = threading.Lock()
        # Made when they are first needed; none where nothing can be pinned. The next one to be filled stands first.
        self._halves: deque[_Half] | None = None
        self._flying = deque[tuple[torch.cuda.Event, torch.Tensor]]()  # whose memory must not be written yet
        if device.type == "cuda":
            AREAS.pinned = True

    def brought(self, block: Block) -> Block:
        """The same block, on the device."""
        if block.k.device.type == self._device.type:
            return block
        self._sweep()
        both = joined(block.k, block.v)
        if both is not None and both.is_pinned():
            k, v = self._flown(both).unbind(1)
            return replace(block, k=k, v=v)
        return replace(block, k=self._sent(block.k), v=self._sent(block.v))

    def _flown(self, pinned: torch.Tensor) -> torch.Tensor:
        sent = pinned.to(self._device, non_blocking=True)
        (landed := torch.cuda.Event()).record(torch.cuda.current_stream(self._device))
        with self._lock:
            self._flying.append((landed, pinned))
        return sent

    def _sweep(self) -> None:
        """Give back what has landed, or nothing could be read into pinned memory any more once that is full."""
        with self._lock:
            while self._flying and self._flying[0][0].query():
                self._flying.popleft()

    def _sent(self, part: torch.Tensor) -> torch.Tensor:
        if part.is_contiguous() and part.is_pinned():
            return self._flown(part)
        if part.nbytes < LEAST_BYTES:
            return part.to(self._device, non_blocking=True)  # the driver has its own copy when this returns
        with self._lock:
            if self._halves is None:
                self._halves = deque(_made(self._device, self._half_bytes))
            return self._by_halves(part, self._halves) if self._halves else part.to(self._device)

    def _by_halves(self, part: torch.Tensor, halves: deque[_Half]) -> torch.Tensor:
        out = torch.empty(part.shape, dtype=part.dtype, device=self._device)
        room = self._half_bytes // part.dtype.itemsize
        rows = max(1, room // part[0].numel())
        for begin in range(0, len(part), rows):
            some, place = part[begin : begin + rows], out[begin : begin + rows]
            if some.numel() > room:
                place.copy_(some)
                continue
            halves[0].send(some, place)
            halves.rotate()
        return out


def joined(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor | None:
    """[layers, 2, kv_heads, n, head_dim], where they lie side by side in one run of memory, as files have them."""
    step = v.storage_offset() - k.storage_offset()
    shape, strides = (len(k), 2, *k.shape[1:]), (2 * step, step, *k.stride()[1:])
    beside = k.untyped_storage().data_ptr() == v.untyped_storage().data_ptr() and k.stride() == v.stride()
    if not beside or step != k[0].numel() or k.stride(0) != 2 * step or not k[0].is_contiguous():
        return None
    return k.as_strided(shape, strides, k.storage_offset())


class _Half:
    def __init__(self, device: torch.device, nbytes: int):
        self._memory = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        self._sent = torch.cuda.Event()
        self._stream_of = device

    def send(self, part: torch.Tensor, place: torch.Tensor) -> None:
        self._sent.synchronize()
        filled = self._memory[: part.nbytes].view(part.dtype).view(part.shape)
        filled.copy_(part)
        place.copy_(filled, non_blocking=True)
        self._sent.record(torch.cuda.current_stream(self._stream_of))


def _made(device: torch.device, nbytes: int) -> list[_Half]:
    try:
        return [_Half(device, nbytes) for _ in range(2)]
    except RuntimeError as error:  # a limit of locked memory, or none left
        logger.warning("KV goes to %s through ordinary memory, which is slower: %s", device, error)
        return []
