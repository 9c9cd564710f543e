"""What sits in on a span forward: hooks on vLLM's own modules, which run since such a forward is never compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Protocol

import torch
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbeddingBase

from ragcache.engine.torch.attention import read_attention
from ragcache.engine.torch.reading import QuestionSum
from ragcache.errors import ModelError
from ragcache.scoring.profile import ProfileBuilder
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
    """Keeps the K and V of a pass over one segment, and sums its profile."""

    def __init__(self, before: Sequence[torch.Tensor], n: int, start: int, layers: int, scale: float):
        """`before`: rotated K of what stands before the segment [layers, kv_heads, m, head_dim]."""
        self._before, self._layers, self._scale = before, layers, scale
        self._positions = torch.arange(start, start + n)
        self._profile = ProfileBuilder([part.shape[2] for part in before] or (0,), n, layers)
        self._k: list[torch.Tensor] = []  # per layer [n, kv_heads * head_dim], unrotated
        self._v: list[torch.Tensor] = []  # per layer [kv_heads, n, head_dim]

    def unrotated(self, k: torch.Tensor) -> None:
        self._k.append(k.clone())  # RoPE may write in place

    def attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """One layer's rotated q [heads, n, head_dim], k and v [kv_heads, n, head_dim]."""
        keys = torch.cat([*(part[len(self._v)] for part in self._before), k], dim=1)
        positions = self._positions.to(k.device)
        for read in read_attention(q, keys, positions, self._scale):
            self._profile.add(read.mean[None], read.start)
        self._v.append(v.clone())

    def result(self) -> tuple[torch.Tensor, torch.Tensor, Profile]:
        if len(self._k) != self._layers:
            raise ModelError(f"the model turned K {len(self._k)} times in {self._layers} layers: not a standard RoPE")
        v = torch.stack(self._v)
        k = torch.stack([part.view(part.shape[0], v.shape[1], -1).transpose(0, 1) for part in self._k])
        return k.contiguous(), v.contiguous(), self._profile.build()


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
def reading(layers: Sequence[Any], order: Sequence[int], reader: QuestionReader) -> Iterator[None]:
    """While inside, `reader` sees the rotated q and k of these layers; then the pass ends, since nobody needs what the
    last of them makes of them. `order`: per row of the batch, which row of the prompt it is.
    """
    back = torch.argsort(torch.tensor(order))

    def see(layer: Any, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]) -> None:
        q, k = (*args, *(kwargs[name] for name in ("query", "key") if name in kwargs))[:2]
        reader.read(_heads(q, layer.num_heads, back), _heads(k, layer.num_kv_heads, back))
        if reader.full:
            raise _Enough

    with ExitStack() as hooks, suppress(_Enough):
        for layer in layers:
            hooks.callback(layer.register_forward_pre_hook(see, with_kwargs=True).remove)
        yield


def _heads(rows: torch.Tensor, heads: int, order: torch.Tensor) -> torch.Tensor:
    """[rows, heads * head_dim] in the batch's order -> [heads, rows, head_dim] in the prompt's."""
    return _split(rows[order.to(rows.device)], heads)


def _split(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """[rows, heads * head_dim] -> [heads, rows, head_dim]."""
    return rows.view(rows.shape[0], heads, -1).transpose(0, 1)
