"""Clients of a streaming engine: one thread per request, as a server has one connection per request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter, sleep

from tqdm import tqdm

Ask = Callable[[], Iterator[int]]  # starts a request; yields how many tokens each message of its stream brings


@dataclass(frozen=True)
class Stream:
    """One request as its client saw it, in seconds since the case began."""

    due: float
    tokens: tuple[float, ...]  # when each token came

    @property
    def ttft(self) -> float:
        """From when it was due: a client that was late with asking waits as well."""
        return self.tokens[0] - self.due

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in pairwise(self.tokens)]


def open_loop(arrivals: Sequence[tuple[float, Ask]], name: str) -> list[Stream]:
    """Ask each at its moment, whatever has become of those before it -> when all are answered, in that order."""
    started = perf_counter()
    with ThreadPoolExecutor(max_workers=len(arrivals)) as clients, tqdm(total=len(arrivals), desc=name) as bar:
        waiting = []
        for due, ask in arrivals:
            sleep(max(0.0, started + due - perf_counter()))
            waiting.append(clients.submit(_read, ask, due, started))
            waiting[-1].add_done_callback(lambda _: bar.update())
        return [one.result() for one in waiting]


def _read(ask: Ask, due: float, started: float) -> Stream:
    moments: list[float] = []
    for count in ask():
        moments += [perf_counter() - started] * count
    return Stream(due, tuple(moments))
