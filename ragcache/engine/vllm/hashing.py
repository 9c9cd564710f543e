"""Keeps linked KV out of the prefix cache's reach for everybody else.

vLLM names a full block by a chain of hashes over its tokens. KV that is linked is not what these tokens' prefill would
be, so from the first block that holds any of it on, a request's hashes get a salt of their own: no other request finds
these blocks, while the exact ones before them stay shared.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ragcache.engine.vllm.faults import FAULTS


@dataclass(frozen=True)
class SaltedHasher:
    """Stands in for the request's own block hasher, also for the blocks that its answer will fill."""

    plain: Callable[[Any], list[bytes]]  # new hashes, chained to the last one that the request has
    exact: int  # so many blocks keep their plain hash
    salt: bytes

    def __call__(self, request: Any) -> list[bytes]:
        known = len(request.block_hashes)
        return [
            fresh if place < self.exact else hashlib.sha256(self.salt + fresh).digest()
            for place, fresh in enumerate(self.plain(request), known)
        ]


def rewrite_hashes(request: Any, exact: int, block: int) -> None:
    """Give a request that nothing is computed of yet its own hashes from the block of position `exact` on.

    `_block_hasher` is not public; vLLM offers a salt for whole prompts alone (cache_salt), which would keep the System
    segment from being shared. Where prefix caching is off there is no hasher, and nothing to do.
    """
    if request._block_hasher is None:
        return
    plain = request._block_hasher
    try:
        _rehash(request, SaltedHasher(plain, exact // block, uuid.uuid4().bytes))
    except FAULTS:
        _rehash(request, plain)
        raise


def _rehash(request: Any, hasher: Any) -> None:
    request._block_hasher = hasher
    request.block_hashes.clear()
    request.update_block_hashes()
