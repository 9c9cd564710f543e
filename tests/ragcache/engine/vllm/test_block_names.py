from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

import pytest

from ragcache.engine.vllm.block_names import LinkName, PromptNames, SaltedHasher, private_name

BLOCK = 4


@dataclass
class Request:
    """The part of vLLM's that block hashes come from."""

    tokens: list[int]
    _block_hasher: object = None
    block_hashes: list[bytes] = field(default_factory=list)
    skip_reading_prefix_cache: bool = False

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


def named(request: Request, held: Container[bytes] = ()) -> PromptNames:
    """`held`: the names in the prefix cache."""

    def found(request: Request) -> int:
        missed = [place for place, name in enumerate(request.block_hashes) if name not in held]
        return (missed or [len(request.block_hashes)])[0] * BLOCK

    return PromptNames(request, BLOCK, found)


def arrived(tokens: int, exact: int | None, *chain: tuple[int, bytes]) -> Request:
    request = Request(list(range(tokens)), chained)
    request.update_block_hashes()
    if exact is not None:
        named(request).link(LinkName(exact, chain or ((0, b"a link"),)))
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
        named(request).link(private_name())
    assert not set(one.block_hashes) & {*other.block_hashes, *arrived(13, None).block_hashes}


def test_without_prefix_caching_there_is_nothing_to_do() -> None:
    request = Request(list(range(9)))
    named(request).link(private_name())
    assert request.block_hashes == []
    assert not isinstance(request._block_hasher, SaltedHasher)


LINK = LinkName(4, ((0, b"a"), (6, b"b"), (12, b"c")), end=18)


@pytest.mark.parametrize("blocks", range(6))
def test_what_there_is_of_the_plain_prefill_goes_before_the_link(blocks: int) -> None:
    request, plain = (arrived(21, None) for _ in range(2))
    names = named(request, plain.block_hashes[:blocks])
    names.link(LINK)
    natural = arrived(21, 4, *LINK.chain).block_hashes
    if blocks <= 1:
        assert request.block_hashes == natural
    else:
        assert request.block_hashes[:blocks] == plain.block_hashes[:blocks]
        assert not set(request.block_hashes[blocks:]) & {*plain.block_hashes, *natural}
    assert names.found(blocks * BLOCK)


def test_of_plain_and_linked_the_longer_one_is_taken() -> None:
    natural, plain = arrived(21, 4, *LINK.chain), arrived(21, None)
    for linked, others in ((3, 3), (4, 3), (2, 3)):
        request = arrived(21, None)
        named(request, {*natural.block_hashes[:linked], *plain.block_hashes[:others]}).link(LINK)
        assert (request.block_hashes == natural.block_hashes) is (linked >= others)


def test_linked_kv_never_takes_the_names_of_a_plain_prefill_that_is_gone() -> None:
    request, plain = (arrived(21, None) for _ in range(2))
    names = named(request, plain.block_hashes[:3])
    names.link(LINK)
    assert not names.found(8), "a block of it was evicted"
    assert request.block_hashes == arrived(21, 4, *LINK.chain).block_hashes
    assert names.found(0), "now that vLLM has looked again"


@pytest.mark.parametrize("computed", [0, 4, 8])
def test_what_is_not_linked_after_all_is_named_plainly(computed: int) -> None:
    """Unless it stands behind something that is linked."""
    request, plain = (arrived(21, None) for _ in range(2))
    names = named(request)
    names.link(LINK)
    names.give_up(computed)
    assert (request.block_hashes == plain.block_hashes) is (computed <= 4)
    assert (names.share is None) is (computed <= 4)
