from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ragcache.engine.vllm.hashing import SaltedHasher, rewrite_hashes

BLOCK = 4


@dataclass
class Request:
    """The part of vLLM's that block hashes come from."""

    tokens: list[int]
    _block_hasher: object = None
    block_hashes: list[bytes] = field(default_factory=list)

    def update_block_hashes(self) -> None:
        if callable(self._block_hasher):
            self.block_hashes.extend(self._block_hasher(self))


def chained(request: Request) -> list[bytes]:
    """Of new full blocks, each with the one before in it."""
    fresh: list[bytes] = []
    for start in range(len(request.block_hashes) * BLOCK, len(request.tokens) - BLOCK + 1, BLOCK):
        before = (fresh or request.block_hashes or [b""])[-1]
        fresh.append(before + bytes(request.tokens[start : start + BLOCK]))
    return fresh


def arrived(tokens: int, exact: int | None) -> Request:
    request = Request(list(range(tokens)), chained)
    request.update_block_hashes()
    if exact is not None:
        rewrite_hashes(request, exact, BLOCK)
    return request


@pytest.mark.parametrize("exact", range(14))
def test_blocks_that_end_before_the_first_approximate_token_keep_their_names(exact: int) -> None:
    plain, linked = arrived(13, None), arrived(13, exact)
    assert len(linked.block_hashes) == 3
    for place in range(3):
        same = (place + 1) * BLOCK <= exact
        assert (linked.block_hashes[place] == plain.block_hashes[place]) is same


def test_what_the_answer_fills_has_names_of_its_own_too() -> None:
    """Also the first block of a prompt that is shorter than a block."""
    for tokens, exact in ((13, 8), (3, 2), (13, 13)):
        plain, linked = arrived(tokens, None), arrived(tokens, exact)
        for request in (plain, linked):
            request.tokens += range(100, 120)
            request.update_block_hashes()
        assert len(linked.block_hashes) == len(plain.block_hashes)
        assert not set(linked.block_hashes[exact // BLOCK :]) & set(plain.block_hashes)


def test_no_two_requests_share_what_is_linked() -> None:
    one, other = arrived(13, 4), arrived(13, 4)
    assert one.block_hashes[0] == other.block_hashes[0]
    assert not set(one.block_hashes[1:]) & set(other.block_hashes[1:])


def test_without_prefix_caching_there_is_nothing_to_do() -> None:
    request = Request(list(range(9)))
    rewrite_hashes(request, 0, BLOCK)
    assert request.block_hashes == []
    assert not isinstance(request._block_hasher, SaltedHasher)
