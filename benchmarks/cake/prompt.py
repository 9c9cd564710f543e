"""One prompt whose KV lies on a disk, on the torch engine: each mode of bringing it, and what the modes' rows tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import sleep

from app.models.loading import LOAD_LIMIT_S, TorchModel
from benchmarks.caches import forget_pages
from benchmarks.cake import ASYNC, EXACT, LAYER, REAL, SYNC, CakeBenchOptions
from benchmarks.cake.conditions import Conditions, QueuedLoader, SharedDevice, ToldLoader
from benchmarks.cake.costs import computes, measured_costs
from benchmarks.corpus import QUESTION
from benchmarks.output import Row, Value
from benchmarks.timing import Case, first_token, median_ttft, paired
from ragcache.cache import ChunkCache
from ragcache.linkage import Linkage
from ragcache.loader import Loader
from ragcache.loader.auto import AutoLoader
from ragcache.loader.cake import CakeLoader
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import READERS, DiskThreads
from ragcache.loader.throttle import Throttle
from ragcache.planning import first_address, plan_prompt
from ragcache.policy import Rates, Terms, worthwhile
from ragcache.report import FULL, Report
from ragcache.store.base import KVStore
from ragcache.store.entry import EntryReader
from ragcache.store.findings import RAM
from ragcache.store.layout import KV
from ragcache.timeline import LOAD, PLACE
from ragcache.types import Chunk, Segment, VariantKey

CAKE, LOADED, COMPUTE = MODES = ("cake", "load", "compute")
FROM_RAM = RAM  # the mode beside a real disk
PATIENCE = 100 * LOAD_LIMIT_S  # the slowest disk of the grid is slow on purpose
WARM_UPS = 2  # in which Cake's rates become this machine's
Mode = tuple[str, str]  # of PRELOADS, and the mode
# By whether layers may lag, and the mode.
LOADERS: Mapping[tuple[bool, str], Callable[..., Loader]] = {
    (False, CAKE): CakeLoader,
    (False, LOADED): SequentialLoader,
    (True, CAKE): AutoLoader,
    (True, LOADED): LayerwiseLoader,
}


@dataclass(frozen=True)
class ColdStore:
    """Where the KV of a prompt lies."""

    disk: KVStore
    ram: KVStore
    folder: Path
    codec: str


@dataclass
class ColdPrompt:
    parts: TorchModel
    kind: str
    chunks: Sequence[Chunk]
    store: ColdStore
    chunk_tokens: int
    seconds_per_byte: float  # of a disk of 1 Gbps
    options: CakeBenchOptions
    told: Mapping[str, Value]  # further columns
    drawn: dict[str, Report] = field(default_factory=dict)  # of Cake, by the case

    def __post_init__(self) -> None:
        template = self.parts.template
        self.segments: list[Segment] = [template.system(), *self.chunks, template.question(QUESTION)]
        self.linker = "naive" if self.kind == EXACT else self.options.linker
        plan = plan_prompt(self.segments, self.parts.engine.spec.fingerprint, self.store.disk)
        nbytes = [plan.system_infos[0].nbytes, *(chunk.candidates[0].info.nbytes for chunk in plan.chunks)]
        self.bits = stored_bits(self.store.folder, [chunk.candidates[0].info.key for chunk in plan.chunks])
        costs = (self.segments, nbytes, self.linker, self.options.cost_rounds)
        self.costs = measured_costs(self.parts, self._cache(SequentialLoader()), *costs)

    def rows(self, conditions: Conditions) -> list[Row]:
        """Of all modes; at a bandwidth of None the disk's own."""
        bytes_per_s = conditions.speed / self.seconds_per_byte
        device = SharedDevice(conditions.device)
        with ExitStack() as ending:
            cases = {
                (preload, mode): self._case(preload, mode, conditions, device, bytes_per_s, ending)
                for preload, mode in self._modes()
            }
            for (_, mode), case in cases.items():
                for _ in range(WARM_UPS * (mode == CAKE)):
                    case()
            reports: dict[Mode, list[Report]] = {name: [] for name in cases}
            costs = []  # of each round: the machine is not the same all the time
            for _ in range(self.options.rounds):
                if not self._real:
                    costs.append(self.costs.at(computes(self.parts, self.segments[:-1])))
                for name, case in cases.items():
                    reports[name].append(case())
        best = {
            preload: [one.optimum(conditions, bytes_per_s, self._wait(preload, bytes_per_s)) for one in costs]
            for preload in self.options.preload
        }
        return [self._row(*one, conditions, reports, best) for one in reports]

    def _modes(self) -> Iterator[Mode]:
        """What a request waits for makes no difference to what only computes."""
        for place, preload in enumerate(self.options.preload):
            yield from ((preload, mode) for mode in MODES if mode != COMPUTE or place == 0)
        if self._real:
            yield SYNC, FROM_RAM

    @property
    def _real(self) -> bool:
        return self.options.disk == REAL

    # -- cases ------------------------------------------------------------------------------------------------------

    def _wait(self, preload: str, bytes_per_s: float) -> float:
        """Seconds of a request, while loading goes on."""
        return self.options.wait * sum(self.costs.nbytes) / bytes_per_s if preload == ASYNC else 0.0

    def _case(
        self,
        preload: str,
        mode: str,
        conditions: Conditions,
        device: SharedDevice,
        bytes_per_s: float,
        ending: ExitStack,
    ) -> Case:
        pace = None if self._real else Throttle(bytes_per_s, conditions.disk)
        wait = self._wait(preload, bytes_per_s)
        loader: Loader = SequentialLoader()
        if mode in (CAKE, LOADED):  # threads of its own: what it gives up may still be read when the next begins
            threads = DiskThreads(READERS, "ragcache-read", PATIENCE)
            loader = LOADERS[preload == LAYER, mode](threads, pace=pace)
        if (preload, mode) == (LAYER, LOADED):
            loader = ToldLoader(loader, bytes_per_s, self.costs.linked)
        loader = QueuedLoader(loader) if wait else loader
        ending.callback(loader.close)
        rates, linker = Rates() if mode == CAKE else None, FULL if mode == COMPUTE else self.linker
        cache = self._cache(loader, rates, self.store.ram if mode == FROM_RAM else None)
        return partial(self._asked, cache, linker, device, pace, wait)

    def _asked(
        self, cache: ChunkCache, linker: str, device: SharedDevice, pace: Throttle | None, wait: float
    ) -> Report:
        if pace is None:
            forget_pages(self.store.folder)
        else:
            pace.restart()
        device.restart()
        if wait:
            self._arrive(cache, linker)
            sleep(wait)
        with device.of(self.parts.engine):
            return first_token(cache, self.segments, linker)

    def _arrive(self, cache: ChunkCache, linker: str) -> None:
        """A request that waits for the engine has its loading begun, of what the engine will want."""
        made, name = cache.chosen(linker), self.parts.engine.spec.fingerprint
        plan, rates = plan_prompt(self.segments, name, cache.store), cache.source.rates
        if rates is not None:
            plan = worthwhile(plan, made, rates, Terms(overlaps=True))
        assert isinstance(cache.source.loader, QueuedLoader)
        cache.source.loader.arrived(Linkage(plan, made, first_address(plan, name)).pieces(), cache.store, rates)

    def _cache(self, loader: Loader, rates: Rates | None = None, store: KVStore | None = None) -> ChunkCache:
        store = store or self.store.disk
        return ChunkCache(self.parts.engine, store, "naive", keep_missed=False, loader=loader, rates=rates)

    # -- rows -------------------------------------------------------------------------------------------------------

    def _row(
        self,
        preload: str,
        mode: str,
        conditions: Conditions,
        reports: Mapping[Mode, Sequence[Report]],
        best: Mapping[str, Sequence[float]],
    ) -> Row:
        found, first = reports[preload, mode], self.options.preload[0]
        row: dict[str, Value] = {
            "mode": mode,
            "engine": self.parts.engine.name,
            "kind": self.kind,
            "tokens": found[0].prompt_tokens,
            "bandwidth_gbps": None if self._real else conditions.speed * conditions.disk.mean,
            "utilisation": conditions.device.mean,
            "bits": self.bits,
            "chunk": self.chunk_tokens,
            "seconds": median_ttft(found),
            "efficiency": None,
            "computed_share": median(computed_share(one, self.chunks) for one in found),
            "peak_kv_mb": max(map(self._peak, found)) / 1e6,
            "preload": preload,
            "trace": conditions.trace,
            **self.told,
            **dict.fromkeys(AGAINST),
        }
        if mode != CAKE:
            return row
        if not self._real:
            pairs = zip(best[preload], found, strict=True)
            row["efficiency"] = median(optimum / report.ttft_s for optimum, report in pairs)
        singles = {LOADED: reports[preload, LOADED], COMPUTE: reports[first, COMPUTE]}
        row |= {f"over_{name}": median_ttft(one) / median_ttft(found) for name, one in singles.items()}
        row |= self._against("better", found, min(singles.values(), key=median_ttft))
        if self._real:
            row |= self._against("ram", found, reports[SYNC, FROM_RAM])
        middle = sorted(found, key=lambda report: report.ttft_s)[len(found) // 2]
        self.drawn[_title(row)] = middle
        return row

    def _against(self, name: str, ours: Sequence[Report], theirs: Sequence[Report]) -> dict[str, Value]:
        mine, others = ([report.ttft_s for report in reports] for reports in (ours, theirs))
        ratio, high = paired(mine, others, self.options.seed)
        return {f"against_{name}": ratio, f"against_{name}_high": high}

    def _peak(self, report: Report) -> float:
        """Bytes of the prompt's own KV, and of what is read and not in its place yet."""
        moments: dict[tuple[float, int], int] = {}
        for one in report.timeline:
            if one.kind in (LOAD, PLACE):
                key, sign = ((one.began, one.piece), 1) if one.kind == LOAD else ((one.ended, one.piece), -1)
                moments[key] = sign * (one.last - one.first)
        most = held = 0
        for _, tokens in sorted(moments.items()):
            held += tokens
            most = max(most, held)
        return (report.prompt_tokens + most) * self.parts.engine.spec.token_bytes


def computed_share(report: Report, chunks: Sequence[Chunk]) -> float:
    return sum(chunk.computed for chunk in report.chunks) / sum(map(len, chunks))


def stored_bits(folder: Path, keys: Collection[VariantKey]) -> float:
    """Bits of an element of K and V in the files of these variants, scales included."""
    nbytes = elements = 0
    for path in folder.rglob(f"*{KV}"):
        with path.open("rb") as file:
            header = EntryReader.parts(file.fileno(), path.name).header
        if header.key in keys:
            nbytes += sum(one.size for one in header.sections if one.name.startswith("layer"))
            elements += 2 * header.shape.layers * header.shape.layer_elements
    return 8 * nbytes / elements


AGAINST = (
    "over_load", "over_compute", "against_better", "against_better_high", "against_ram", "against_ram_high",
)  # fmt: skip


def _title(row: Mapping[str, Value]) -> str:
    speed = row["bandwidth_gbps"]
    disk = "the disk itself" if speed is None else f"{speed:.3g} Gbps"
    told = f"{row['kind']}, {row['tokens']} tokens by {row['chunk']}, {row['codec']}, {disk}"
    told += f", {row['utilisation']:.3g} of the device, {row['preload']}"
    told += "" if row["shape"] == "model" else f", {row['shape']}"
    return told + ("" if row["trace"] is None else f", trace {row['trace']}")
