"""Keeps linked KV out of the prefix cache's reach for everybody who has not asked for the same link.

vLLM names a full block by a chain of hashes over its tokens. KV that is linked is not what these tokens' prefill would
be, so from the first block that holds any of it on, a request's hashes are salted. The salt names the link: the linker,
and which variant of each chunk stands there, up to the block's end. So whoever asks for the same link finds these
blocks, with another question or a longer conversation behind them, and nobody else does.
"""

from __future__ import annotations

import hashlib
import uuid
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ragcache.engine.vllm.faults import FAULTS
from ragcache.linking.base import Linker
from ragcache.planning import Plan


@dataclass(frozen=True)
class Share:
    """What of a link others may use: the full blocks before the question."""

    key: bytes  # the name of the last of them, which tells of all before it
    tokens: int


@dataclass(frozen=True)
class LinkName:
    """Of a prompt's linked KV."""

    exact: int  # positions before this one are named by their tokens alone
    chain: tuple[tuple[int, bytes], ...]  # where each segment begins, and the digest of what the link is up to its end
    end: int = 0  # of the linked part; behind it stands the question

    @property
    def whole(self) -> bytes:
        return self.chain[-1][1]

    def salt(self, end: int) -> bytes:
        """Of a block that ends there."""
        return self.chain[max(0, bisect_left(self.chain, end, key=lambda one: one[0]) - 1)][1]


def link_name(plan: Plan, linker: Linker, exact: int) -> LinkName:
    """The question behind the chunks is no part of it."""
    digest = _digest(repr(linker).encode(), plan.system.hash.encode())
    chain = [(0, digest)]
    parts = [(text.start, f"text {len(text)}") for text in plan.texts]
    for chunk in plan.chunks:
        served = chunk.candidates[0].info.key.digest if chunk.candidates else "computed"
        parts.append((chunk.span.start, f"{chunk.segment.hash} {served}"))
    for start, part in sorted(parts):
        digest = _digest(digest, part.encode())
        chain.append((start, digest))
    return LinkName(exact, tuple(chain), plan.question)


def private_name() -> LinkName:
    """Nobody else's."""
    return LinkName(0, ((0, uuid.uuid4().bytes),))


class SaltedHasher:
    """Stands in for the request's own block hasher, also for the blocks that its answer will fill. These have the names
    that a longer prompt gives them, in which they are the history: the chain goes over hashes without salt.
    """

    def __init__(self, plain: Callable[[Any], list[bytes]], name: LinkName, block: int):
        """`plain` gives new hashes, chained to the last one that the request has."""
        self._plain, self._name, self._block = plain, name, block
        self._last: bytes | None = None  # of the blocks that are named already, without salt

    def __call__(self, request: Any) -> list[bytes]:
        known, exact = len(request.block_hashes), self._name.exact // self._block
        fresh = self._chained(request)
        self._last = fresh[-1] if fresh else self._last
        return [
            one if place < exact else _digest(self._name.salt((place + 1) * self._block), one)
            for place, one in enumerate(fresh, known)
        ]

    def _chained(self, request: Any) -> list[bytes]:
        if self._last is None:
            return self._plain(request)
        salted, request.block_hashes[-1] = request.block_hashes[-1], self._last
        try:
            return self._plain(request)
        finally:
            request.block_hashes[-1] = salted


def rewrite_hashes(request: Any, name: LinkName, block: int) -> None:
    """Give a request that nothing is computed of yet the hashes of its link.

    `_block_hasher` is not public; vLLM offers a salt for whole prompts alone (cache_salt), which would keep the System
    segment from being shared. Where prefix caching is off there is no hasher, and nothing to do.
    """
    if request._block_hasher is None:
        return
    plain = request._block_hasher
    try:
        _rehash(request, SaltedHasher(plain, name, block))
    except FAULTS:
        _rehash(request, plain)
        raise


def share_of(request: Any, name: LinkName, block: int) -> Share | None:
    """None where others can share nothing."""
    blocks = min(name.end // block, len(request.block_hashes))
    return Share(request.block_hashes[blocks - 1], blocks * block) if blocks else None


def _rehash(request: Any, hasher: Any) -> None:
    request._block_hasher = hasher
    request.block_hashes.clear()
    request.update_block_hashes()


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"\0".join(parts)).digest()
