"""The commands of `ragcache bench`. What each measures with is imported when it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.flags import CacheDir, Device, Dtype, Engine, Model, configure
from benchmarks.ablations import AblationsBenchOptions
from benchmarks.burst import BurstBenchOptions
from benchmarks.cake import CakeBenchOptions
from benchmarks.chunking import ChunkingBenchOptions
from benchmarks.ingest import IngestBenchOptions
from benchmarks.kvgen import KvgenBenchOptions
from benchmarks.load import LoadBenchOptions
from benchmarks.memory import MemoryBenchOptions
from benchmarks.options import BenchOptions
from benchmarks.overhead import OverheadBenchOptions
from benchmarks.partial import PartialBenchOptions
from benchmarks.quality import QualityBenchOptions
from benchmarks.rates import RatesBenchOptions
from benchmarks.refining import RefiningBenchOptions
from benchmarks.retrieval import RetrievalBenchOptions
from benchmarks.search import SearchBenchOptions
from benchmarks.serve import ServeBenchOptions
from benchmarks.soak import SoakBenchOptions
from benchmarks.start import StartBenchOptions
from benchmarks.support import SupportBenchOptions
from benchmarks.trace import TraceBenchOptions
from benchmarks.ttft import TtftBenchOptions
from benchmarks.ui import UiBenchOptions

BENCHMARKS: Mapping[str, type[BenchOptions]] = {
    "ablations": AblationsBenchOptions,
    "burst": BurstBenchOptions,
    "cake": CakeBenchOptions,
    "chunking": ChunkingBenchOptions,
    "ingest": IngestBenchOptions,
    "load": LoadBenchOptions,
    "overhead": OverheadBenchOptions,
    "partial": PartialBenchOptions,
    "rates": RatesBenchOptions,
    "refining": RefiningBenchOptions,
    "retrieval": RetrievalBenchOptions,
    "search": SearchBenchOptions,
    "serve": ServeBenchOptions,
    "soak": SoakBenchOptions,
    "start": StartBenchOptions,
    "support": SupportBenchOptions,
    "quality": QualityBenchOptions,
    "trace": TraceBenchOptions,
    "ttft": TtftBenchOptions,
    "ui": UiBenchOptions,
    "kvgen": KvgenBenchOptions,
    "memory": MemoryBenchOptions,
}
SHARED = {"engine": Engine, "model": Model, "device": Device, "dtype": Dtype, "cache_dir": CacheDir}


def command(name: str, kind: type[BenchOptions]) -> Callable[..., None]:
    """For typer: hands settings, options and where the figures go to `main` in benchmarks/NAME/measurement.py."""

    def run(json: Path, **given: Any) -> None:
        settings = configure(**{setting: given[setting] for setting in kind.of_settings})
        options = kind(**{one.name: _value(one, given[one.name]) for one in fields(kind)})
        import_module(f"benchmarks.{name}.measurement").main(settings, options, json)

    run.__doc__ = kind.__doc__
    run.__dict__["__signature__"] = Signature([*_parameters(name, kind)])
    return run


def _value(one: Field[Any], given: Any) -> Any:
    read = one.metadata["read"]
    return read(given, one.metadata["flag"] or one.name.replace("_", "-")) if read else given


def _parameters(name: str, kind: type[BenchOptions]) -> Iterator[Parameter]:
    for one in fields(kind):
        asked = one.metadata
        flag = typer.Option(f"--{asked['flag'] or one.name.replace('_', '-')}", help=asked["help"], min=asked["least"])
        default = Parameter.empty if asked["default"] is MISSING else asked["default"]
        of = asked["kind"] | None if default is None else asked["kind"]
        yield Parameter(one.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[of, flag])
    where = Annotated[Path, typer.Option(help="Where the figures go.")]
    yield Parameter("json", Parameter.KEYWORD_ONLY, default=Path(f"results/{name}.json"), annotation=where)
    for setting in kind.of_settings:
        yield Parameter(setting, Parameter.KEYWORD_ONLY, default=None, annotation=SHARED[setting])


app = typer.Typer(
    help="Run a benchmark; each writes its figures as JSON.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for name, kind in BENCHMARKS.items():
    app.command(name)(command(name, kind))
