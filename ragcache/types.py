"""The nouns that the whole package shares. ragcache knows nothing of text: callers tokenise."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # who only looks for KV has no use for them
    import numpy as np
    import numpy.typing as npt
    import torch

from ragcache.errors import PromptError

FloatArray: TypeAlias = "npt.NDArray[np.float32]"


_LARGEST_ID = 2**31 - 1


def ids_hash(ids: Sequence[int]) -> str:
    """Name of a token sequence: sha256 over the ids as little-endian 32-bit integers."""
    import numpy as np

    return hashlib.sha256(np.asarray(ids, dtype="<i4").tobytes()).hexdigest()


def check_ids(ids: Sequence[int]) -> None:
    """Raises PromptError for what is no token id of any model, or what would share the name of one."""
    if set(map(type, ids)) - {int}:
        strange = next(token for token in ids if type(token) is not int)
        raise PromptError(f"token {strange!r} is of the type {type(strange).__name__}: give plain integers")
    for token in (min(ids, default=0), max(ids, default=0)):
        if not 0 <= token <= _LARGEST_ID:
            raise PromptError(f"token {token} is no token id: give integers from 0 to {_LARGEST_ID}")


@dataclass(frozen=True)
class Segment:
    """A piece of the prompt."""

    ids: tuple[int, ...]
    border: str = ""  # who may see it and what was computed over it; "" is everybody

    @cached_property
    def hash(self) -> str:
        """Raises PromptError for what are no token ids."""
        check_ids(self.ids)
        return ids_hash(self.ids)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class System(Segment):
    """The prefix that every prompt of an application shares."""


@dataclass(frozen=True)
class Chunk(Segment):
    """A retrieved piece of a document, tokenised alone, so its ids never depend on its neighbours."""


@dataclass(frozen=True)
class Text(Segment):
    """History or question: always computed, never cached."""


@dataclass(frozen=True, order=True)
class Span:
    """Token positions [start, end) of a prompt."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def spans_of(positions: Sequence[int] | npt.NDArray[np.int64]) -> list[Span]:
    """Ascending positions as maximal runs."""
    spans: list[Span] = []
    for position in positions:
        if spans and spans[-1].end == position:
            spans[-1] = Span(spans[-1].start, int(position) + 1)
        else:
            spans.append(Span(int(position), int(position) + 1))
    return spans


@dataclass(frozen=True)
class VariantKey:
    """What a chunk's KV was computed from: the whole address of a cache entry."""

    fingerprint: str
    system: str
    context: tuple[str, ...]  # hashes of the chunks it attended to, in order
    chunk: str
    # Of what the context's own stored KV had seen before it ("" = nothing but the System segment). Only then is the
    # variant equal to a stock prefill of System, context and chunk.
    history: str = ""
    border: str = ""  # see Segment; another border's is another entry

    @cached_property
    def family(self) -> str:
        """Shared by all variants of one chunk behind one System segment, within one border."""
        return self._named("family", self.fingerprint, self.system, self.chunk)

    @property
    def lead(self) -> VariantKey:
        """Of the family's variant behind the System segment alone."""
        return replace(self, context=(), history="")

    @cached_property
    def digest(self) -> str:
        return self._named("variant", self.fingerprint, self.system, self.history, *self.context, self.chunk)

    def _named(self, kind: str, *parts: str) -> str:
        return digest_of(f"{kind} within", self.border, *parts) if self.border else digest_of(kind, *parts)


def digest_of(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Profile:
    """Attention of a chunk's tokens at capture, mean over heads and layers (Cache-Craft, eqs 3, 4, 10).

    It serves the scoring alone: KV is right without it, only the choice of tokens to repair is worse.
    """

    inter: FloatArray  # [context + 1, n]: of token t, spent on the System (row 0) and on each context chunk
    intra: FloatArray  # [n]: of token t, spent on earlier tokens of its own chunk (itself left out)
    received: FloatArray  # [n]: by token t, from later tokens of its own chunk
    lengths: tuple[int, ...]  # tokens of the System and of each context chunk, as the rows of `inter`

    def __post_init__(self) -> None:
        n = self.intra.shape[0]
        assert self.inter.shape == (len(self.lengths), n), (self.inter.shape, len(self.lengths), n)
        assert self.received.shape == (n,), self.received.shape

    @cached_property
    def context_sums(self) -> tuple[float, ...]:
        """Spent on each context chunk by all tokens together."""
        return tuple(self.inter[1:].sum(axis=1, dtype="float64").tolist())

    @cached_property
    def own_sum(self) -> float:
        """Spent within the chunk by all tokens together."""
        return float(self.intra.sum(dtype="float64"))

    @property
    def nbytes(self) -> int:
        return self.inter.nbytes + self.intra.nbytes + self.received.nbytes


@dataclass(frozen=True)
class Pass:
    """Rows of a variant that were computed together."""

    rows: Span
    behind: tuple[str, ...]  # digests of the variants that stood between the System segment and them


@dataclass(frozen=True)
class Lineage:
    """Where a variant's KV comes from."""

    passes: tuple[Pass, ...]  # in the order of their rows, which are all; none where it is not known
    seen: tuple[str, ...] = ()  # hashes of the chunks that had a part in it, also through KV that it was computed over
    complete: bool = True  # whether these are all: there may be too many of them, or they were not told
    lost: tuple[str, ...] = ()  # what has rounded it, or KV that it was computed over: codecs

    @property
    def lossless(self) -> bool:
        """Bit for bit what the engine computed, over KV of which the same is true. What a codec, or a codec of what
        stood before it, has rounded is not: it serves prompts, and is never taken for a plain prefill's.
        """
        return not self.lost

    def rounded(self, *by: str) -> Lineage:
        return replace(self, lost=tuple(dict.fromkeys((*self.lost, *by))))


@dataclass(frozen=True)
class Origin:
    """What KV is, and where it comes from, without the KV."""

    key: VariantKey
    ids: tuple[int, ...]
    lineage: Lineage

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Variant:
    """The KV of one chunk computed in one context. Tensors are never written after construction."""

    key: VariantKey
    ids: tuple[int, ...]
    k: torch.Tensor  # [layers, kv_heads, n, head_dim], unrotated: RoPE is applied where it is placed
    v: torch.Tensor  # [layers, kv_heads, n, head_dim]
    profile: Profile
    lineage: Lineage

    @property
    def origin(self) -> Origin:
        return Origin(self.key, self.ids, self.lineage)

    @property
    def lossless(self) -> bool:
        return self.lineage.lossless

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class KVForm:
    """Of all KV of one engine."""

    layers: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class VariantInfo:
    """What is known of a stored variant without reading its KV."""

    key: VariantKey
    tokens: int
    nbytes: int  # as stored, in its codec
    tier: str  # the fastest one that holds it
    profile: Profile
    lossless: bool  # see Lineage; of the copy in this tier
    level: int = 0  # of the tier: how many faster ones the store has
