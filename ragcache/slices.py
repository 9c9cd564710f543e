"""Long chunks, in parts: where computing from the front and loading from the back may meet within one."""

from __future__ import annotations

from collections.abc import Iterator

from ragcache.store.findings import BUCKET
from ragcache.store.format import BLOCK, FINE
from ragcache.types import Span


def slices(span: Span, tier: str) -> list[Span]:
    """The parts of an entry of this tier, by its positions. A file of one block is read whole, and what lies in a
    bucket comes whole: so that is computed whole, or not at all. The last slice may be longer.
    """
    count = _count(span, tier)
    return [Span(span.start + FINE * number, _end(span, number + 1, count)) for number in range(count)]


def ends_behind(position: int, span: Span, tier: str) -> Iterator[int]:
    """Of what may be computed next of it, where all before a position is: one slice, two, four and so on, or all."""
    count = _count(span, tier)
    done, more = max(0, position - span.start) // FINE, 1
    while done + more < count:
        yield _end(span, done + more, count)
        more *= 2
    yield span.end


def last_of(span: Span, tier: str) -> int:
    """Where the last of them begins."""
    return span.start + FINE * (_count(span, tier) - 1)


def begins_pass(number: int) -> bool:
    """Whether computing one slice more, the first being 1, takes one more forward: of what can be computed before both
    sides meet each takes a good half.
    """
    return not number & (number - 1)


def _count(span: Span, tier: str) -> int:
    return 1 if tier == BUCKET or len(span) <= BLOCK else len(span) // FINE


def _end(span: Span, number: int, count: int) -> int:
    return span.end if number >= count else span.start + FINE * number
