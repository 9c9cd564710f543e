"""All kinds of use at once, then a look at what is left of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from time import monotonic

from tqdm import tqdm

from app.ingestion.spool import FOLDER
from app.models.folders import resolve_model
from app.settings import Settings
from benchmarks.corpus import read_texts
from benchmarks.folder import bench_folder
from benchmarks.output import Row, Value, publish
from benchmarks.serve.child import ProcessUse, UseWatch, growth, serving
from benchmarks.soak import SoakBenchOptions
from benchmarks.soak.actors import COLLECTION, USES, SoakRun, SoakTally, files_of, left_running, missing, uploads
from benchmarks.soak.actors import use_again_and_again as used

MIB = 1024**2


def main(settings: Settings, options: SoakBenchOptions, out: Path) -> None:
    with bench_folder(settings.cache_dir) as folder:
        run(settings, read_texts(options.data), options, folder, out)


def run(
    settings: Settings, texts: Sequence[str], options: SoakBenchOptions, folder: Path, out: Path | None
) -> list[Row]:
    model = resolve_model(settings.model, settings.cache_dir)
    tallies = {name: SoakTally() for name in USES}
    with serving(settings, folder / "server", model=str(model)) as child:
        soaked = SoakRun(child.url, child.model, texts, options.answer_tokens, options.documents, options.seed)
        watch = UseWatch(child)
        _soak(soaked, watch, tallies, options)
        left = left_running(soaked) if child.alive else -1
        lost = missing(soaked) if child.alive else ["the server has ended"]
        child.wait_until_quiet()
        at_rest, log = child.use(), child.told
    uploaded = files_of(folder / "server" / "data" / FOLDER)
    rows: list[Row] = [
        _row(name, one.done, one.busy, one.errors.total(), len(one.lost)) for name, one in tallies.items()
    ]
    done, busy = (sum(getattr(one, name) for one in tallies.values()) for name in ("done", "busy"))
    # Its errors: what goes on for nobody.
    rows.append(_row("server", done, busy, left, len(lost) + uploaded) | _resources(watch, at_rest))
    settled = options.settings() | {name: getattr(settings, name) for name in ("model", "engine", "dtype", "threads")}
    samples = [{"rss_mb": one.rss / MIB, "fds": one.fds} for one in watch.samples[:: max(1, len(watch.samples) // 200)]]
    told = {
        "errors": {name: dict(one.errors) for name, one in tallies.items() if one.errors},
        "lost": {name: one.lost for name, one in tallies.items() if one.lost} | ({"server": lost} if lost else {}),
        "samples": samples,
        "log": log,
    }
    publish(settled | {"cores": os.cpu_count()}, rows, out, told)
    return rows


def _soak(soaked: SoakRun, watch: UseWatch, tallies: Mapping[str, SoakTally], options: SoakBenchOptions) -> None:
    with soaked.client() as client:
        client.post("/v1/collections", json={"name": COLLECTION}).raise_for_status()
        uploads(soaked, client, Random(options.seed))
    threads = [
        threading.Thread(target=used, args=(soaked, use, tallies[name], options.seed + place), name=name)
        for place, (name, use) in enumerate(USES.items())
    ]
    with watch.running():
        for thread in threads:
            thread.start()
        _wait(options.minutes * 60, soaked)
        for thread in threads:
            thread.join()


def _row(use: str, done: int, busy: int, errors: int, lost: int) -> dict[str, Value]:
    row: dict[str, Value] = {"use": use, "done": done, "busy": busy, "errors": errors, "lost": lost}
    return row | dict.fromkeys(("rss_mb", "rss_growth_mb", "fds", "fds_growth"))


def _resources(watch: UseWatch, at_rest: ProcessUse | None) -> dict[str, Value]:
    rss, fds = (growth([getattr(one, name) for one in watch.samples]) for name in ("rss", "fds"))
    return {
        "rss_mb": None if at_rest is None else at_rest.rss / MIB,
        "rss_growth_mb": None if rss is None else rss / MIB,
        "fds": None if at_rest is None else at_rest.fds,
        "fds_growth": fds,
    }


def _wait(seconds: float, soaked: SoakRun) -> None:
    """Then nobody begins anything new."""
    started = monotonic()
    with tqdm(total=round(seconds), unit="s") as bar:
        while not soaked.ended.wait(min(1.0, max(0.01, seconds - (monotonic() - started)))):
            bar.update(round(monotonic() - started) - bar.n)
            if monotonic() - started >= seconds:
                soaked.ended.set()
