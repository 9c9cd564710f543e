from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from benchmarks.load.clients import Stream, open_loop


def test_a_late_answer_delays_no_arrival() -> None:
    """The first one is answered when all that came after it have been."""
    others = threading.Semaphore(0)

    def first() -> Iterator[int]:
        for _ in range(5):
            assert others.acquire(timeout=600), "the others wait for the first one"
        yield 1

    def later() -> Iterator[int]:
        yield 1
        others.release()

    streams = open_loop([(0.0, first), *((0.001 * n, later) for n in range(5))], "test")
    assert [stream.due for stream in streams] == [0.0, *(0.001 * n for n in range(5))], "in the order of arrival"
    assert all(stream.tokens[0] >= stream.due for stream in streams)


def test_every_token_of_a_message_counts() -> None:
    def answer(counts: list[int]) -> Iterator[int]:
        yield from counts

    (stream,) = open_loop([(0.0, partial(answer, [1, 2, 1]))], "test")
    assert len(stream.tokens) == 4
    assert stream.gaps[1] == 0.0, "two came in one message"
    assert stream.tokens == tuple(sorted(stream.tokens))


def test_the_wait_counts_from_the_moment_that_a_request_was_due() -> None:
    stream = Stream(2.0, (2.5, 2.6, 3.0))
    assert stream.ttft == 0.5
    assert stream.gaps == pytest.approx([0.1, 0.4])


def test_a_request_that_fails_ends_the_case() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("no engine")

    with pytest.raises(ValueError, match="no engine"):
        open_loop([(0.0, broken)], "test")
