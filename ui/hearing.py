"""What is waited for until a click: Streamlit ends a run for one when it touches its session, and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

import streamlit as st

from ragcache.errors import HandingOver

T = TypeVar("T")
SLICE_S = 0.1  # between two looks for a click


def error_of(awaited: Future[T]) -> BaseException | None:
    """What it ended with; None where that is a result."""
    while True:
        try:
            return awaited.exception(SLICE_S)
        except TimeoutError:
            _hear()


@contextmanager
def each(values: Iterator[T], leave: Callable[[], object]) -> Iterator[Iterator[T]]:
    """Those values, which a thread waits for. `leave` has that wait end: it is called at the end of the block."""
    ended: Future[None] = Future()
    told: SimpleQueue[T | Future[None]] = SimpleQueue()  # `ended` comes last

    def run() -> None:
        with HandingOver(ended):
            for one in values:
                told.put(one)
            ended.set_result(None)
        told.put(ended)

    Thread(target=run, name="listener", daemon=True).start()
    try:
        yield _each(told)
    finally:
        leave()


def _each(told: SimpleQueue[T | Future[None]]) -> Iterator[T]:
    while True:
        try:
            one = told.get(timeout=SLICE_S)
        except Empty:
            _hear()
            continue
        if isinstance(one, Future):
            one.result()
            return
        yield one


def _hear() -> None:
    st.session_state.get("heard")
