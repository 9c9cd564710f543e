"""Keeps linked KV out of the prefix cache's reach for everybody who has not asked for the same link.

vLLM names a full block by a chain of hashes over its tokens. KV that is linked is not what these tokens' prefill would
be, so from the first block that holds any of it on, a request's hashes are salted. The salt names the link: the linker,
and which variant of each chunk stands there, up to the block's end. So whoever asks for the same link finds these
blocks, with another question or a longer conversation behind them, and nobody else does. Of requests that ask for it at
once one makes it, and the others wait until they find it.

What the prefix cache has of a prompt's plain prefill is better than a link, and there already: where it reaches further
than what there is of the link, the names are plain up to its end.
"""

from __future__ import annotations

import hashlib
import uuid
from bisect import bisect_left
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

from ragcache.errors import FAULTS, PromptError
from ragcache.linking.base import Linker
from ragcache.linking.focus import LEAST
from ragcache.planning import Plan
from ragcache.types import Segment, ids_hash


@dataclass(frozen=True)
class SharedBlocks:
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

    def behind(self, plain: int) -> LinkName:
        """Of what is linked behind so many positions of a plain prefill."""
        mark = f"behind {plain}".encode()
        return LinkName(plain, tuple((start, _digest(digest, mark)) for start, digest in self.chain), self.end)


def link_name(plan: Plan, linker: Linker, exact: int) -> LinkName:
    """The question behind the chunks is no part of it, but of a focus on what it reads."""
    system = _named(plan.system) if plan.system else ""
    cached = [chunk.candidates[0] for chunk in plan.cached]
    narrows = linker.focus and len(cached) >= LEAST and not all(one.unchanged for one in cached)
    asked = f" {ids_hash(plan.ids[plan.question :])}" if narrows else ""
    digest = _digest(linker.choosing.encode(), f"{system} {plan.head}{asked}".encode())
    chain = [(0, digest)]
    parts = [(text.start, f"text {len(text)}") for text in plan.texts]
    for chunk in plan.chunks:
        served = chunk.candidates[0].info.key.digest if chunk.candidates else "computed"
        parts.append((chunk.span.start, f"{_named(chunk.segment)} {served}"))
    for start, part in sorted(parts):
        digest = _digest(digest, part.encode())
        chain.append((start, digest))
    return LinkName(exact, tuple(chain), plan.question)


def _named(segment: Segment) -> str:
    return f"{segment.hash} within {segment.border}" if segment.border else segment.hash


def private_name() -> LinkName:
    """Nobody else's."""
    return LinkName(0, ((0, uuid.uuid4().bytes),))


def foreign_input(request: Any) -> str | None:
    """What of a request's KV its token ids do not tell, so that no address may be made of them; None for nothing."""
    if request.mm_features:
        return "it holds images, sounds or videos"
    if request.prompt_embeds is not None:
        return "it holds embeddings in place of tokens"
    if request.lora_request is not None:
        return "it asks for an adapter"
    if request.resumable:
        return "its prompt goes on after it was planned"
    return None


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


class PromptNames:
    """How the prefix cache names what there will be of a request of vLLM's, as long as nothing of it is computed.

    `_block_hasher` is not public; vLLM offers a salt for whole prompts alone (cache_salt), which would keep the System
    segment from being shared. Where prefix caching is off there is no hasher, and nothing to do.
    """

    def __init__(self, request: Any, block: int, held: Callable[[Any], int]):
        """`held`: positions that the prefix cache has of a request, by the names that it has now."""
        self._request, self._block, self._held = request, block, held
        self._plain = request._block_hasher
        self._asked: LinkName | None = None
        self._given: LinkName | None = None

    @property
    def held(self) -> int:
        """Positions that the prefix cache has of it now, by its name."""
        return 0 if self._plain is None else self._held(self._request)

    def link(self, name: LinkName) -> None:
        """Its KV will be linked."""
        if self._request.skip_reading_prefix_cache:
            raise PromptError("its options (prompt_logprobs is one) need each of its tokens computed: leave them out")
        if self._plain is None:
            return
        plain = self._held(self._request) if name.end else 0
        self._asked = name
        try:
            self._give(name)
            if plain > max(name.exact, self._held(self._request)):
                self._give(name.behind(plain))
        except FAULTS:
            self._take_back()
            raise

    @property
    def share(self) -> SharedBlocks | None:
        """What others may use of its link; None where that is nothing."""
        name = self._given
        if name is None:
            return None
        blocks = min(name.end // self._block, len(self._request.block_hashes))
        return SharedBlocks(self._request.block_hashes[blocks - 1], blocks * self._block) if blocks else None

    def found(self, computed: int) -> bool:
        """Whether the prefix cache has what it is named behind, now that it has so many positions of it. If not, it has
        other names from here on, and is to be looked up again. What it is named behind may be evicted until its blocks
        are its own, and then it would be linked KV that has the names of a plain prefill.
        """
        if self._given is self._asked or self._given is None or computed >= self._given.exact:
            return True
        assert self._asked is not None
        self._give(self._asked)
        return False

    def give_up(self, computed: int) -> None:
        """All but the first positions will be a plain prefill after all."""
        if self._given is not None and computed <= self._given.exact // self._block * self._block:
            self._take_back()

    def _give(self, name: LinkName) -> None:
        self._rehash(SaltedHasher(self._plain, name, self._block))
        self._given = name

    def _take_back(self) -> None:
        self._rehash(self._plain)
        self._given = self._asked = None

    def _rehash(self, hasher: Any) -> None:
        self._request._block_hasher = hasher
        self._request.block_hashes.clear()
        self._request.update_block_hashes()


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"\0".join(parts)).digest()


class Leaders:
    """Those that make a link now."""

    def __init__(self) -> None:
        self._names: dict[str, PromptNames] = {}  # of requests that are to be linked
        self._making: dict[bytes, str] = {}  # what is made, by whom
        self._made: dict[str, bytes] = {}  # the other way round

    @property
    def making(self) -> Container[bytes]:
        return self._making

    @property
    def names(self) -> set[str]:
        return {*self._making.values(), *self._names}

    def know(self, request: str, names: PromptNames, link: LinkName) -> None:
        """It is to be linked."""
        names.link(link)
        self._names[request] = names

    def free(self, request: str, computed: int) -> bool:
        """Whether nobody else makes what it lacks, where vLLM has so many positions of it."""
        if not self._names[request].found(computed):
            return False  # until vLLM has looked again
        share = self._names[request].share
        return share is None or computed >= share.tokens or self._making.get(share.key, request) == request

    def lead(self, request: str, computed: int) -> None:
        share = self._names[request].share
        if share is not None and computed < share.tokens and share.key not in self._making:
            self.done(request)
            self._making[share.key], self._made[request] = request, share.key

    def done(self, request: str) -> None:
        """Its link is in the prefix cache, or will never be: others need not wait for it any more."""
        key = self._made.pop(request, None)
        if key is not None:
            del self._making[key]

    def give_up(self, request: str, computed: int) -> None:
        """It is not to be linked after all, where vLLM has so many positions of it."""
        self._names[request].give_up(computed)
        self.gone(request)

    def gone(self, request: str) -> None:
        self.done(request)
        self._names.pop(request, None)
