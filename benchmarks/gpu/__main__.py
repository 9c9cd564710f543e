"""`make gpu`: one part after the other, each in a process of its own and within its time."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks.gpu import VLLM, GpuBenchOptions, LeftOut
from benchmarks.output import publish
from ragcache.errors import RagcacheError

# Seconds of each part: those of an engine together no more than nine minutes.
LIMITS = {"exactness": 90, "tiny": 45, "1b": 120, "8b": 210, "index": 75}
LIMITS |= {"vllm-exactness": 90, "vllm-tiny": 60, "vllm-1b": 150, "vllm-8b": 240}
EXACTNESS, INDEX = "exactness", "index"
FAILED, LEFT_OUT = 1, 3  # exit codes of a part


def main() -> int:
    arguments = _arguments()
    try:
        options = GpuBenchOptions(**{one.name: _value(one, arguments) for one in fields(GpuBenchOptions)})
    except RagcacheError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            f"error: torch {torch.__version__} sees no CUDA device here. Run it where there is one, with that "
            "machine's python: make gpu PYTHON=python3. The same code on the CPU, small: "
            "make gpu DEVICE=cpu SHAPES=tiny",
            file=sys.stderr,
        )
        return 2
    if arguments.part:
        return _run_part(arguments.part, options, arguments.folder)
    return _run_all(options)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.gpu", description=GpuBenchOptions.__doc__)
    for one in fields(GpuBenchOptions):
        asked = one.metadata
        parser.add_argument(f"--{one.name}", type=asked["kind"], default=asked["default"], help=asked["help"])
    parser.add_argument("--folder", type=Path, default=Path("results/gpu"), help="Where the figures go.")
    parser.add_argument("--part", choices=LIMITS, help="This part alone, in this process.")
    return parser.parse_args()


def _value(one: Any, arguments: argparse.Namespace) -> Any:
    given, read = getattr(arguments, one.name), one.metadata["read"]
    return read(given, one.name) if read else given


def _run_all(options: GpuBenchOptions) -> int:
    ends: dict[str, str] = {}
    for part in parts_of(options):
        print(f"\n== {part}", flush=True)
        started = perf_counter()
        try:
            code = subprocess.run(
                [sys.executable, "-m", "benchmarks.gpu", *sys.argv[1:], "--part", part], timeout=LIMITS[part]
            ).returncode
            told = {0: "done", LEFT_OUT: "left out"}.get(code, "FAILED, for the reason above")
        except subprocess.TimeoutExpired:
            told = f"FAILED: it took longer than {LIMITS[part]} s"
        ends[part] = f"{told} ({perf_counter() - started:.0f} s)"
    print("\n" + "\n".join(f"{part}: {told}" for part, told in ends.items()))
    return outcome(ends.values())


def parts_of(options: GpuBenchOptions) -> Iterator[str]:
    if "torch" in options.engines:
        yield from (EXACTNESS, *options.shapes, INDEX)
    if "vllm" in options.engines:
        yield from (f"{VLLM}{part}" for part in (EXACTNESS, *options.shapes))


def outcome(ends: Collection[str]) -> int:
    """An exit code: 0 where something was measured and nothing failed."""
    failed, done = (any(told.startswith(end) for told in ends) for end in ("FAILED", "done"))
    return 0 if done and not failed else FAILED


def _run_part(part: str, options: GpuBenchOptions, folder: Path) -> int:
    settings = options.settings() | _machine(options.device) | {"part": part}
    exact = True
    try:
        measurement = import_module(f"benchmarks.gpu.{_module(part)}")
        for name, rows in measurement.measure(part, options):
            out = folder / (f"{name}.json" if name == part else f"{name}-{part}.json")
            command = " ".join(["python -m benchmarks.gpu", *sys.argv[1:]])
            publish(settings, rows, out, {"command": command})
            print(flush=True)
            exact = exact and all(row.get("exact", "yes") == "yes" for row in rows)
    except (LeftOut, ImportError) as error:
        print(f"{part} is left out: {error}", file=sys.stderr)
        return LEFT_OUT
    except RagcacheError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    return 0 if exact else FAILED


def _module(part: str) -> str:
    """Each measures the parts of its kind."""
    inside, name = ("vllm_", part.removeprefix(VLLM)) if part.startswith(VLLM) else ("", part)
    return inside + (name if name in (EXACTNESS, INDEX) else "model")


def _machine(device: str) -> dict[str, Any]:
    """The chip, and the day."""
    chip = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"chip": chip, "cuda": torch.version.cuda, "date": datetime.now(UTC).date().isoformat()}


if __name__ == "__main__":
    sys.exit(main())
