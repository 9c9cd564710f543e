"""Each system's server is a process of its own. All of them are up at once, and one at a time is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path

import httpx2
from tqdm import tqdm

from app.models.folders import resolve_model
from app.prompt import open_template
from app.settings import Settings
from benchmarks.corpus import read_texts
from benchmarks.folder import bench_folder
from benchmarks.output import Row, publish, render
from benchmarks.serve import CLOSED, SERVE_SYSTEMS, ServeBenchOptions
from benchmarks.serve.child import ServerChild, UseWatch, serving
from benchmarks.serve.clients import PATIENCE_S, StreamingClients, trace_moments
from benchmarks.serve.figures import HIDDEN, CaseFigures, at_equal_wait
from benchmarks.serve.prompts import Number, ServeWorkload
from ragcache.errors import ConfigError

WARM, CASE = range(2)  # so that what counts was not asked before
WARM_CLIENTS = 2
CACHES = "/v1/context_caches"


def main(settings: Settings, options: ServeBenchOptions, out: Path) -> None:
    with bench_folder(settings.cache_dir) as folder:
        run(settings, read_texts(options.data), options, folder, out)


def run(
    settings: Settings, texts: Sequence[str], options: ServeBenchOptions, folder: Path, out: Path | None
) -> list[Row]:
    moments = _moments(options)
    workload = ServeWorkload(open_template(settings), texts, options)
    # Converted once, for all of them.
    model = resolve_model(settings.model, settings.cache_dir)
    with ExitStack() as opened:
        servers = [
            MeasuredServer(
                name,
                opened.enter_context(
                    serving(
                        settings,
                        folder / name,
                        model=str(model),
                        context_caches=str(len(workload.passages)),
                        **SERVE_SYSTEMS[name].settings,
                    )
                ),
                workload,
            )
            for name in options.systems
        ]
        for server in tqdm(servers, desc="context caches", unit="server"):
            server.create_caches()
        rows, failures = _cases(servers, options, moments)
    ratios = at_equal_wait(rows)
    told = options.settings() | {
        name: getattr(settings, name) for name in ("model", "engine", "device", "dtype", "threads")
    }
    told |= {"cores": os.cpu_count(), "passages": len(workload.passages)}
    told |= {"servers": {name: dict(SERVE_SYSTEMS[name].settings) for name in options.systems}}
    hidden = HIDDEN if len(options.ccr) == 1 else HIDDEN[1:]
    publish(told, rows, out, {"equal_wait": ratios, "failures": failures}, hidden)
    if ratios:
        print(f"\n{render(ratios)}")
    return rows


def _moments(options: ServeBenchOptions) -> Mapping[tuple[int, int], Sequence[float]]:
    """When requests arrive, by clients and round; none where clients ask when their answers have ended."""
    if options.arrivals == CLOSED:
        return {}
    if options.trace is None:
        raise ConfigError("--arrivals ragpulse: name the trace by --trace")
    each = options.seconds / options.rounds
    found = {}
    for clients in options.clients:
        moments = trace_moments(options.trace, clients * options.rate, options.seconds, options.seed)
        for turn in range(options.rounds):
            found[clients, turn] = [one - turn * each for one in moments if turn * each <= one < (turn + 1) * each]
    return found


def _cases(
    servers: Sequence[MeasuredServer],
    options: ServeBenchOptions,
    moments: Mapping[tuple[int, int], Sequence[float]],
) -> tuple[list[Row], list[Mapping[str, object]]]:
    rows: list[Row] = []
    failures: list[Mapping[str, object]] = []
    for place, ccr in enumerate(options.ccr):
        for server in tqdm(servers, desc="warm-up", unit="server"):
            server.warm(ccr, place, options.warm)
        for clients in options.clients:
            figures = {server.name: CaseFigures() for server in servers}
            for turn in range(options.rounds):
                arriving, number = moments.get((clients, turn)), (CASE, place, clients, turn)
                case = MeasuredCase(ccr, clients, options.seconds / options.rounds, number, arriving)
                _measure(servers, case, figures)
            for name, found in figures.items():
                rows.append(found.row(name, clients, ccr))
                told = {"system": name, "clients": clients, "ccr": ccr}
                failures += [told | {"error": error, "times": times} for error, times in found.failures.items()]
    return rows, failures


def _measure(servers: Sequence[MeasuredServer], case: MeasuredCase, figures: Mapping[str, CaseFigures]) -> None:
    """One server after the other, while none of them works."""
    for server in tqdm(servers, desc=f"{case.clients} clients, part {case.number[-1] + 1}", unit="server"):
        for one in servers:
            one.child.wait_until_quiet()
        server.measure(case, figures[server.name])


@dataclass(frozen=True)
class MeasuredCase:
    """One round of it."""

    ccr: float
    clients: int
    seconds: float
    number: Number
    moments: Sequence[float] | None  # when requests arrive, where that is given


@dataclass
class MeasuredServer:
    name: str
    child: ServerChild
    workload: ServeWorkload
    caches: list[str] = field(default_factory=list)  # of the passages, in their order

    def create_caches(self) -> None:
        """Raises ConfigError where the server refuses one."""
        if not SERVE_SYSTEMS[self.name].caches:
            return
        with httpx2.Client(base_url=self.child.url, timeout=PATIENCE_S, trust_env=False) as client:
            for passage in self.workload.passages:
                response = client.post(CACHES, json={"texts": [passage.text]})
                if response.status_code != httpx2.codes.CREATED:
                    raise ConfigError(f"{self.name}: a context cache was refused: {response.text}")
                self.caches.append(response.json()["id"])

    def warm(self, ccr: float, place: int, requests: int) -> None:
        body = partial(self._body, ccr, (WARM, place))
        self._clients.closed(body, WARM_CLIENTS, inf, requests)

    def measure(self, case: MeasuredCase, figures: CaseFigures) -> None:
        watch = UseWatch(self.child, figures.uses)
        body = partial(self._body, case.ccr, case.number)
        with watch.running():
            if case.moments is None:
                figures.add(self._clients.closed(body, case.clients, case.seconds))
            else:
                figures.add(self._clients.open(body, case.moments))

    @property
    def _clients(self) -> StreamingClients:
        return StreamingClients(self.child.url, lambda: self.child.alive)

    def _body(self, ccr: float, of: Number, number: int) -> Mapping[str, object]:
        question = self.workload.question(ccr, (*of, number))
        return self.workload.body(SERVE_SYSTEMS[self.name], self.child.model, self.caches, question)
