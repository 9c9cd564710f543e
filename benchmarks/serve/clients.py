"""Clients that stream, a thread each with a connection of its own, and what they have seen of each answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import httpx2
import numpy as np

from ragcache.errors import ConfigError

CHAT = "/v1/chat/completions"
PATIENCE_S = 600.0  # for the next byte
PAUSE_S = 1.0  # after an error
DATA = "data: "

Body = Callable[[int], Mapping[str, Any]]  # of the request with this number


@dataclass(frozen=True)
class StreamedAnswer:
    """As its client saw it, in seconds since its case began. With an `error` it counts for nothing else."""

    due: float
    pieces: tuple[float, ...] = ()  # when each event with text came
    end: float = 0.0
    prompt: int = 0  # tokens, of which some were cached
    cached: int = 0
    error: str = ""

    @property
    def ttft(self) -> float:
        """From when it was due: a client that was late with asking waits as well."""
        return (self.pieces[0] if self.pieces else self.end) - self.due

    @property
    def e2e(self) -> float:
        return self.end - self.due

    @property
    def gaps(self) -> list[float]:
        """Between two events, which may bring several tokens each."""
        return [after - before for before, after in pairwise(self.pieces)]


class BrokenStream(Exception):
    """The server said so, or its stream had no end."""


@dataclass(frozen=True)
class StreamingClients:
    """Of one server."""

    url: str
    alive: Callable[[], bool]  # whether it is worth asking again after an error

    def closed(self, body: Body, clients: int, seconds: float, most: int | None = None) -> list[StreamedAnswer]:
        """Each asks again as soon as its answer has ended, until `seconds` are over or there are `most` requests; all
        are waited for.
        """
        numbers = count()

        def work(client: httpx2.Client) -> list[StreamedAnswer]:
            found: list[StreamedAnswer] = []
            while perf_counter() - started < seconds:
                number = next(numbers)
                if most is not None and number >= most:
                    break
                request = body(number)
                found.append(stream_answer(client, request, perf_counter() - started, started))
                if found[-1].error:
                    if not self.alive():
                        break
                    sleep(PAUSE_S)
            return found

        with self._connections(clients) as connections, ThreadPoolExecutor(clients) as threads:
            started = perf_counter()
            return [one for found in threads.map(work, connections) for one in found]

    def open(self, body: Body, moments: Sequence[float]) -> list[StreamedAnswer]:
        """Each at its moment, whatever has become of those before it."""
        bodies = [body(number) for number in range(len(moments))]
        with self._connections(len(moments)) as connections, ThreadPoolExecutor(max(1, len(moments))) as threads:
            started, waiting = perf_counter(), []
            for client, one, due in zip(connections, bodies, moments, strict=True):
                sleep(max(0.0, started + due - perf_counter()))
                waiting.append(threads.submit(stream_answer, client, one, due, started))
            return [one.result() for one in waiting]

    @contextmanager
    def _connections(self, clients: int) -> Iterator[list[httpx2.Client]]:
        """To no other host, so there is no certificate that would take time to read."""
        with ExitStack() as opened:
            yield [
                opened.enter_context(
                    httpx2.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False, verify=False)
                )
                for _ in range(clients)
            ]


def stream_answer(client: httpx2.Client, body: Mapping[str, Any], due: float, started: float) -> StreamedAnswer:
    """Whatever goes wrong is told in it."""
    pieces: list[float] = []
    usage: Mapping[str, Any] = {}
    try:
        with client.stream("POST", CHAT, json=body) as response:
            if response.status_code != httpx2.codes.OK:
                raise BrokenStream(f"status {response.status_code}: {response.read().decode(errors='replace')}")
            for event in _events(response.iter_lines()):
                if _text(event):
                    pieces.append(perf_counter() - started)
                usage = event.get("usage") or usage
    except (httpx2.HTTPError, BrokenStream, ValueError) as error:
        return StreamedAnswer(due, error=f"{type(error).__name__}: {error}")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return StreamedAnswer(due, tuple(pieces), perf_counter() - started, usage.get("prompt_tokens", 0), cached)


def _events(lines: Iterable[str]) -> Iterable[Mapping[str, Any]]:
    for line in lines:
        if line == f"{DATA}[DONE]":
            return
        if line.startswith(DATA):
            event = json.loads(line.removeprefix(DATA))
            if "error" in event:
                raise BrokenStream(str(event["error"]))
            yield event
    raise BrokenStream("the stream ended before its end was told")


def _text(event: Mapping[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in event["choices"])


def trace_moments(path: Path, rate: float, seconds: float, seed: int) -> list[float]:
    """Moments in [0, seconds) as requests follow each other somewhere in the trace, which has `rate` of them per second
    on average when it is run so fast. Raises ConfigError for what is no trace.
    """
    try:
        told = [float(json.loads(line)["t"]) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"--trace {path}: give JSON lines with the seconds `t` ({error!r})") from error
    times = np.sort(np.asarray(told))
    if len(times) < 2 or times[-1] <= times[0]:
        raise ConfigError(f"--trace {path}: it has fewer than two requests, or all in one second")
    scaled = (times - times[0]) * ((len(times) - 1) / (times[-1] - times[0]) / rate)
    if scaled[-1] < seconds:
        raise ConfigError(
            f"--trace {path}: at {rate:g} a second it lasts {scaled[-1]:.0f} s, and {seconds:g} are asked"
        )
    last = int(np.searchsorted(scaled, scaled[-1] - seconds, side="right"))
    first = int(np.random.default_rng(seed).integers(last))
    return [float(one - scaled[first]) for one in scaled[first:] if one - scaled[first] < seconds]
