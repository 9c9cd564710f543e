"""What is left of a prompt is known by sums: however many pieces there are, a decision looks at few."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from random import Random
from typing import Any

import numpy as np
import pytest

from ragcache.engine.vllm.meeting import Approach
from ragcache.loader import SYSTEM, Delivery, PieceLoaded, SegmentPiece
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import DiskThreads
from ragcache.loader.waiting import Waiting
from ragcache.rates import Rates, Work
from ragcache.store import open_store
from tests.loaders import known_rates


class Watched(SegmentPiece):
    """It counts how often anything of it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        if name != "__dict__":
            self.__dict__["looks"] = self.__dict__.get("looks", 0) + 1
        return super().__getattribute__(name)


def watched(count: int) -> list[Watched]:
    return [Watched(place, 10 * place, (), False, "disk", 1000, 10) for place in range(count)]


def looks(pieces: Sequence[Watched]) -> float:
    """At each, in the mean."""
    return float(sum(piece.__dict__["looks"] for piece in pieces)) / len(pieces)


def brought(count: int, claims: bool) -> float:
    """Looks, from the first to the last piece that is brought; none is computed."""
    pieces, threads = watched(count), DiskThreads(2, "test-waiting", 20.0)
    loader = CakeLoader(threads, claims=claims)
    loading = loader.begin(pieces, open_store(codec="raw"), known_rates(1e-3, 1e-9))
    taken = 0
    while not loading.ended:
        if loading.take() is not None:
            taken += 1
        else:
            assert not loading.claim(pieces[0], 1e9)
            wait(loading.awaited, 0.05, FIRST_COMPLETED)
    loader.close()
    assert taken == count
    return looks(pieces)


@pytest.mark.parametrize("claims", [True, False])
def test_ten_times_the_pieces_are_ten_times_the_work(monkeypatch: pytest.MonkeyPatch, claims: bool) -> None:
    def quick(store: Any, piece: SegmentPiece, *more: Any) -> Delivery:
        return Delivery(piece, (), PieceLoaded(piece.index, 0, "disk", piece.nbytes))

    monkeypatch.setattr("ragcache.loader.met.bring", quick)
    assert brought(500, claims) < 2 * brought(50, claims)


def approached(count: int) -> float:
    """The same where a scheduler's side decides: pieces come from the back, and it asks each time."""
    pieces = watched(count)
    made = Approach(pieces, known_rates(1e-3, 1e-9), lambda rows, tokens: 1e9, lambda: 100.0)
    for piece in reversed(pieces):
        made.looked(100.0)
        assert not made.claims(pieces[0], np.arange(10), 100, final=True)
        made.came(piece)
    return looks(pieces)


def test_nor_does_a_scheduler_look_at_all_that_is_left() -> None:
    assert approached(500) < 2 * approached(50)


def drawn(draw: Random) -> list[SegmentPiece]:
    """Chunks on several tiers, some of unknown size; a block of a stored prefix may begin where one of them does."""
    pieces = [SegmentPiece(SYSTEM, 0, (), tier="disk", nbytes=draw.choice([0, 700]), tokens=7)]
    for place in range(30):
        nbytes, tokens = draw.choice([0, *range(1, 10**6, 7919)]), draw.choice([128, 128, 128, 77])
        tier = draw.choice(["ram", "disk", "bucket", ""])
        pieces.append(SegmentPiece(place, 7 + 128 * place, (), tier=tier, nbytes=nbytes, tokens=tokens))
        if draw.random() < 0.2:
            pieces.append(SegmentPiece(SYSTEM - 1 - place, 7 + 128 * place, (), tier="disk", nbytes=9, tokens=128))
    return pieces


@pytest.mark.parametrize("seed", range(5))
def test_its_sums_are_those_of_its_pieces(seed: int) -> None:
    draw, rates = Random(seed), Rates()
    for nbytes in (10**4, 10**6, 10**5) * 4:
        rates.observe_load("disk", nbytes, 1e-3 + 1e-9 * nbytes)
    pieces = drawn(draw)
    made, inside = Waiting(), list[SegmentPiece]()
    for _ in range(400):
        there = {piece.index for piece in inside}
        outside = [piece for piece in pieces if piece.index not in there]
        what = draw.choice(["add", "add", "pop", "remove", "drop", "trim"])
        if what == "add" and outside:
            made.add(one := draw.choice(outside))
            inside.append(one)
            inside.sort(key=lambda piece: (piece.start, -piece.index))
        elif what == "pop" and inside:
            assert made.pop() == inside.pop()
        elif what == "remove" and inside:
            made.remove(inside.pop(inside.index(one := draw.choice(inside))))
            assert one not in made
        elif what == "drop" and inside:
            made.drop(inside.pop(draw.randrange(len(inside))).index)
        elif what == "trim" and inside:
            place = draw.randrange(len(inside))
            until = inside[place].start + inside[place].skip + draw.randrange(inside[place].tokens)
            made.trim(pieces[[piece.index for piece in pieces].index(inside[place].index)], until)
            inside[place] = inside[place].behind(until)
        assert len(made) == len(inside)
        assert made.last(2) == inside[-2:]
        there = {piece.index for piece in inside}
        assert all((piece in made) is (piece.index in there) for piece in pieces)
        assert made.has("disk") is any(piece.tier == "disk" for piece in inside)
        assert made.seconds(rates) == pytest.approx(sum(rates.load_seconds(one.tier, one.nbytes) for one in inside))
        firsts = (one.start + one.skip for one in inside)
        each = (Work.of_rows(at, at + one.tokens) + Work(passes=1) for at, one in zip(firsts, inside, strict=True))
        assert made.work == sum(each, Work())


def test_what_computing_takes_is_not_told_where_tokens_are_not_known() -> None:
    known, unknown = (SegmentPiece(place, 10 * place, (), tokens=tokens) for place, tokens in ((0, 10), (1, 0)))
    made = Waiting([known, unknown])
    assert made.work is None
    made.remove(unknown)
    assert made.work == Work.of_rows(0, 10) + Work(passes=1)
