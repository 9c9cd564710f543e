"""What sits in on a span forward: hooks on vLLM's own modules, where it is not compiled, or around what its layers call
to write and to attend, which a compiled one calls too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import torch
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbeddingBase

from ragcache.engine.torch.attention import QuestionSum, read_attention
from ragcache.errors import ModelError
from ragcache.profile import ProfileBuilder
from ragcache.types import Profile


class _Enough(Exception):
    """Ends a pass in the middle."""


class QuestionReader:
    """Sums what the question's rows read before it."""

    def __init__(self, keys: torch.Tensor, rows: Sequence[int], question: int, scale: float):
        """`keys`: rotated K that is placed [layers, kv_heads, positions, head_dim], written where `rows`, the positions
        of the pass, are computed anew; from `question` on they are the question's.
        """
        self._keys, self._scale = keys, scale
        self._rows = torch.tensor(rows, device=keys.device)
        self._sum = QuestionSum(rows, question, keys.device)
        self._first = self._done = 0

    def turn(self, first: int) -> None:
        """The next pass starts with this row."""
        self._first, self._done = first, 0

    def read(self, q: torch.Tensor, k: torch.Tensor) -> None:
        """One layer's rotated q [heads, rows, head_dim] and k [kv_heads, rows, head_dim], rows in prompt order."""
        keys, rows = self._keys[self._done], self._rows[self._first : self._first + k.shape[1]]
        keys[:, rows] = k
        others = max(0, self._sum.first - self._first)
        for read in read_attention(q[:, others:], keys, rows[others:], self._scale):
            self._sum.add(self._first + others, read)
        self._done += 1

    @property
    def full(self) -> bool:
        return self._done == len(self._keys)

    def mean(self) -> torch.Tensor:
        """Per token that is read, mean over this rank's heads and the layers. [tokens, question]"""
        assert self.full, (self._done, len(self._keys))
        return self._sum.mean(self._done)


class Listener(Protocol):
    """Told of each layer in turn."""

    def unrotated(self, k: torch.Tensor) -> None:
        """K on its way into RoPE [n, kv_heads * head_dim]; RoPE may write in place."""

    def attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """What attention is given: rotated q [heads, n, head_dim], k and v [kv_heads, n, head_dim]."""


class Recorder:
    """Keeps the K and V of a segment that is computed slice by slice, and sums its profile."""

    def __init__(self, room: torch.Tensor, lengths: Sequence[int], n: int, scale: float):
        """`room`: rotated K and V of the prompt [2, layers, kv_heads, positions, head_dim], which hold what stands
        before the segment, of these lengths; its own are written behind.
        """
        _, self._layers, kv_heads, _, head_dim = room.shape
        self._room, self._n, self._scale = room, n, scale
        self._start = self._end = sum(lengths)
        self._profile = ProfileBuilder(tuple(lengths) or (0,), n, self._layers)
        self._k = room.new_empty((self._layers, kv_heads, n, head_dim))  # unrotated
        self._turned = self._attended = 0  # layers of the slice

    def begin(self, rows: int) -> None:
        """The next so many rows pass through all layers."""
        self._slice = slice(self._end, self._end + rows)
        self._turned = self._attended = 0

    def unrotated(self, k: torch.Tensor) -> None:
        """One layer's [n, kv_heads * head_dim]; RoPE may write in place."""
        if self._turned < self._layers:
            own = slice(self._slice.start - self._start, self._slice.stop - self._start)
            self._k[self._turned, :, own] = k.view(k.shape[0], self._k.shape[1], -1).transpose(0, 1)
        self._turned += 1

    def attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """One layer's rotated q [heads, n, head_dim], k and v [kv_heads, n, head_dim]."""
        keys, values = self._room[:, self._attended]
        keys[:, self._slice], values[:, self._slice] = k, v
        positions = torch.arange(self._slice.start, self._slice.stop, device=k.device)
        for read in read_attention(q, keys[:, : self._slice.stop], positions, self._scale):
            self._profile.add(read.mean[None], self._slice.start - self._start + read.start)
        self._attended += 1

    def end(self) -> None:
        if self._turned != self._layers:
            raise ModelError(f"the model turned K {self._turned} times in {self._layers} layers: not a standard RoPE")
        self._end = self._slice.stop

    def result(self) -> tuple[torch.Tensor, torch.Tensor, Profile]:
        """K, unrotated, and V [layers, kv_heads, n, head_dim]."""
        own = slice(self._start, self._start + self._n)
        return self._k, self._room[1, :, :, own].clone(), self._profile.build()


@contextmanager
def recording(model: Any, layers: Sequence[Any], listener: Listener) -> Iterator[None]:
    """While inside, `listener` sees every layer's K before RoPE, and q, k and v after it. One span alone: its rows are
    in order.
    """

    def turn(module: Any, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]) -> None:
        listener.unrotated((*args, *(kwargs[name] for name in ("query", "key") if name in kwargs))[2])

    def see(layer: Any, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]) -> None:
        q, k, v = (*args, *(kwargs[name] for name in ("query", "key", "value") if name in kwargs))[:3]
        kv_heads = layer.num_kv_heads
        listener.attended(_split(q, layer.num_heads), _split(k, kv_heads), _split(v, kv_heads))

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, RotaryEmbeddingBase):  # one that all layers share, or one each: called in their order
                hooks.callback(module.register_forward_pre_hook(turn, with_kwargs=True).remove)
        for layer in layers:
            hooks.callback(layer.register_forward_pre_hook(see, with_kwargs=True).remove)
        yield


@contextmanager
def keeping(
    layers: Sequence[Any],
    rows: int,
    kept: Sequence[tuple[slice, torch.Tensor]],
    before: Callable[[int], None] | None = None,
) -> Iterator[None]:
    """While inside, the rotated K of the last `rows` rows of a forward goes elsewhere too, as each layer writes it into
    the paged cache, which a compiled model does the same way. `kept`: some of these rows, and where their K goes
    [layers, kv_heads, n, head_dim]. `before`: is told of each layer before it writes.
    """

    def write(plainly: Callable[..., None], place: int, layer: Any, k: torch.Tensor, *rest: Any) -> None:
        if before is not None:
            before(place)
        for own, keys in kept:
            keys[place] = k[len(k) - rows :][own].transpose(0, 1)
        plainly(layer, k, *rest)

    with ExitStack() as undo:
        for place, layer in enumerate(layers if kept or before else ()):
            layer.impl.do_kv_cache_update = partial(write, layer.impl.do_kv_cache_update, place)
            undo.callback(delattr, layer.impl, "do_kv_cache_update")  # back to its class's
        yield


@contextmanager
def reading(layers: Sequence[Any], order: Sequence[int], reader: QuestionReader) -> Iterator[None]:
    """While inside, `reader` sees the rotated q and k of these layers as they attend, which a compiled model does the
    same way; then the pass ends, since nobody needs what the last of them makes of them. `order`: per row of the
    batch, which row of the prompt it is.
    """
    back = torch.argsort(torch.tensor(order))

    def see(plainly: Callable[..., Any], layer: Any, q: torch.Tensor, k: torch.Tensor, *rest: Any, **named: Any) -> Any:
        reader.read(_heads(q, layer.num_heads, back), _heads(k, layer.num_kv_heads, back))
        if reader.full:
            raise _Enough
        return plainly(layer, q, k, *rest, **named)

    with ExitStack() as undo, suppress(_Enough):
        for layer in layers:
            layer.impl.forward = partial(see, layer.impl.forward)
            undo.callback(delattr, layer.impl, "forward")  # back to its class's
        yield


def _heads(rows: torch.Tensor, heads: int, order: torch.Tensor) -> torch.Tensor:
    """[rows, heads * head_dim] in the batch's order -> [heads, rows, head_dim] in the prompt's."""
    return _split(rows[order.to(rows.device)], heads)


def _split(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """[rows, heads * head_dim] -> [heads, rows, head_dim]."""
    return rows.view(rows.shape[0], heads, -1).transpose(0, 1)
