from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ragcache.engine.vllm.hashing import LinkName, SaltedHasher, private_name, rewrite_hashes

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


def arrived(tokens: int, exact: int | None, *chain: tuple[int, bytes]) -> Request:
    request = Request(list(range(tokens)), chained)
    request.update_block_hashes()
    if exact is not None:
        rewrite_hashes(request, LinkName(exact, chain or ((0, b"a link"),)), BLOCK)
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


def test_requests_share_blocks_up_to_where_their_links_differ() -> None:
    """A segment that begins inside of a block, or right behind it, is in the block's name or not."""
    one = arrived(21, 4, (0, b"a"), (6, b"b"), (12, b"c"))
    assert arrived(21, 4, (0, b"a"), (6, b"b"), (12, b"c")).block_hashes == one.block_hashes
    for shared, chain in (
        (1, ((0, b"x"), (6, b"y"), (12, b"z"))),
        (1, ((0, b"a"), (6, b"y"), (12, b"z"))),
        (3, ((0, b"a"), (6, b"b"), (12, b"z"))),
        (3, ((0, b"a"), (6, b"b"), (13, b"z"))),
    ):
        other = arrived(21, 4, *chain)
        assert [
            place for place, (a, b) in enumerate(zip(one.block_hashes, other.block_hashes, strict=True)) if a == b
        ] == list(range(shared))


def test_what_an_answer_filled_is_found_as_history() -> None:
    """Whether the names were given all at once or as the answer grew, and wherever the exact part ends."""
    for exact in range(22):
        grown = arrived(13, exact, (0, b"a"), (6, b"b"))
        for count in (1, 3, 4, 8, 9, 20):
            grown.tokens = list(range(13 + count))
            grown.update_block_hashes()
        assert grown.block_hashes == arrived(33, exact, (0, b"a"), (6, b"b")).block_hashes


def test_a_private_name_is_nobody_elses() -> None:
    one, other = Request(list(range(13)), chained), Request(list(range(13)), chained)
    for request in (one, other):
        rewrite_hashes(request, private_name(), BLOCK)
    assert not set(one.block_hashes) & {*other.block_hashes, *arrived(13, None).block_hashes}


def test_without_prefix_caching_there_is_nothing_to_do() -> None:
    request = Request(list(range(9)))
    rewrite_hashes(request, private_name(), BLOCK)
    assert request.block_hashes == []
    assert not isinstance(request._block_hasher, SaltedHasher)
