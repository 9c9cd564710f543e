"""All kinds of use at once, then a look at what is left of them."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import monotonic

from tqdm import tqdm

from app.ingestion.spool import FOLDER
from app.models import resolve_model
from app.settings import Settings
from benchmarks.corpus import read_texts
from benchmarks.output import Row, publish
from benchmarks.serve.child import UseWatch, growth, serving
from benchmarks.soak import SoakBenchOptions
from benchmarks.soak.actors import COLLECTION, USES, SoakRun, SoakTally, files_of, left_running, missing, uploads
from benchmarks.soak.actors import use_again_and_again as used

MIB = 1024**2


def main(settings: Settings, options: SoakBenchOptions, out: Path) -> None:
    settings.cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=settings.cache_dir, prefix="bench-") as folder:
        run(settings, read_texts(options.data), options, Path(folder), out)


def run(
    settings: Settings, texts: Sequence[str], options: SoakBenchOptions, folder: Path, out: Path | None
) -> list[Row]:
    model = resolve_model(settings.model, settings.cache_dir)
    tallies = {name: SoakTally() for name in USES}
    with serving(settings, folder / "server", model=str(model)) as child:
        soaked = SoakRun(child.url, child.model, texts, options.answer_tokens, options.documents, options.seed)
        with soaked.client() as client:
            client.post("/v1/collections", json={"name": COLLECTION}).raise_for_status()
            uploads(soaked, client, Random(options.seed))
        seeds = range(options.seed, options.seed + len(USES))
        threads = [
            threading.Thread(target=used, args=(soaked, use, tallies[name], seed), name=name)
            for (name, use), seed in zip(USES.items(), seeds, strict=True)
        ]
        watch = UseWatch(child)
        with watch.running():
            for thread in threads:
                thread.start()
            _wait(options.minutes * 60, soaked)
            for thread in threads:
                thread.join()
        left = left_running(soaked) if child.alive else -1
        lost = missing(soaked) if child.alive else ["the server has ended"]
        child.wait_until_quiet()
        at_rest = child.use()
        told = child.told
    rss, fds = ([getattr(one, name) for one in watch.samples] for name in ("rss", "fds"))
    grown, more = growth(rss), growth(fds)
    rows: list[Row] = [
        {
            "use": name,
            "done": one.done,
            "busy": one.busy,
            "errors": one.errors.total(),
            "lost": len(one.lost),
            "rss_mb": None,
            "rss_growth_mb": None,
            "fds": None,
            "fds_growth": None,
        }
        for name, one in tallies.items()
    ]
    rows.append(
        {
            "use": "server",
            "done": sum(one.done for one in tallies.values()),
            "busy": sum(one.busy for one in tallies.values()),
            "errors": left,  # of what goes on for nobody
            "lost": len(lost) + files_of(folder / "server" / "data" / FOLDER),
            "rss_mb": None if at_rest is None else at_rest.rss / MIB,
            "rss_growth_mb": None if grown is None else grown / MIB,
            "fds": None if at_rest is None else at_rest.fds,
            "fds_growth": more,
        }
    )
    settled = options.told() | {name: getattr(settings, name) for name in ("model", "engine", "dtype", "threads")}
    errors = {name: dict(one.errors) for name, one in tallies.items() if one.errors}
    lacking = {name: one.lost for name, one in tallies.items() if one.lost} | ({"server": lost} if lost else {})
    samples = [{"rss_mb": one.rss / MIB, "fds": one.fds} for one in watch.samples[:: max(1, len(watch.samples) // 200)]]
    more_told = {"errors": errors, "lost": lacking, "samples": samples, "log": told}
    publish(settled | {"cores": os.cpu_count()}, rows, out, more_told)
    return rows


def _wait(seconds: float, soaked: SoakRun) -> None:
    """Then nobody begins anything new."""
    started = monotonic()
    with tqdm(total=round(seconds), unit="s") as bar:
        while not soaked.ended.wait(min(1.0, max(0.01, seconds - (monotonic() - started)))):
            bar.update(round(monotonic() - started) - bar.n)
            if monotonic() - started >= seconds:
                soaked.ended.set()
