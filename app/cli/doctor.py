"""`ragcache doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from app.cli.flags import CacheDir, Device, Dtype, Engine, Model, configure
from app.doctor import examine


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    engine: Engine = None,
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
) -> None:
    """Check that this installation can work; exit code 1 when something is amiss."""
    findings = examine(configure(engine=engine, model=model, device=device, dtype=dtype, cache_dir=cache_dir))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{'✓' if finding.ok else '✗'} {finding.name}: {finding.detail}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
