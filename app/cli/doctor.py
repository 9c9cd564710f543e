"""`ragcache doctor`: is this installation fit to work? Each check is a function."""

from __future__ import annotations

import json
import platform
import tempfile
from dataclasses import asdict
from importlib import metadata
from typing import Annotated

import typer
from packaging.requirements import Requirement

from app.cli.findings import Check, Finding, examine
from app.cli.flags import configured
from app.client.amounts import size
from app.models.conversion import find_flaw
from app.models.folders import BUNDLED, resolve_embedder, resolve_model
from app.settings import Settings, variable
from ragcache.host import free_bytes, private_folder

DISTRIBUTION = "ragcache-kv"
FREE_BYTES = 2 * 1024**3  # the converted model and a first corpus


def check_versions(settings: Settings) -> list[Finding]:
    """Python and every library that the installed distribution asks for, against what it asks for."""
    found = [Finding("python", True, platform.python_version())]
    try:
        wanted = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or []]
    except metadata.PackageNotFoundError:
        return [*found, Finding(DISTRIBUTION, False, "not installed: pip install -e .")]
    for requirement in wanted:
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found.append(_version_finding(requirement))
    return found


def _version_finding(requirement: Requirement) -> Finding:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Finding(requirement.name, False, f"not installed: pip install '{requirement}'")
    if requirement.specifier.contains(version, prereleases=True):
        return Finding(requirement.name, True, version)
    return Finding(requirement.name, False, f"{version} is installed, {requirement} is needed")


def check_cache_folder(settings: Settings) -> list[Finding]:
    folder = settings.cache_dir
    try:
        private_folder(folder)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"ragcache")
            file.flush()
    except OSError as error:
        return [Finding("cache folder", False, f"cannot write in {folder}: {error}; set {variable('cache_dir')}")]
    return [Finding("cache folder", True, f"{folder} is writable")]


def check_disk(settings: Settings) -> list[Finding]:
    free = free_bytes(settings.cache_dir)
    detail = f"{size(free)} free for {settings.cache_dir}, {size(FREE_BYTES)} needed"
    return [Finding("free disk", free >= FREE_BYTES, detail)]


def check_kv(settings: Settings) -> list[Finding]:
    """When KV is computed, and how much there may be."""
    if settings.kv == "off":
        return [Finding("KV", True, "off: answers compute their prompts in full")]
    most, free, floor = map(size, (settings.disk_bytes, free_bytes(settings.kv_folder), settings.disk_floor))
    told = f"{settings.kv}: {most} at most ({variable('disk_bytes')}); {free} are free on its disk, and {floor} stay so"
    return [Finding("KV", True, told)]


def check_bucket(settings: Settings) -> list[Finding]:
    """Only where there is one."""
    if not settings.remote:
        return []
    from ragcache.store.remote.bucket import Bucket  # it imports numpy

    bucket = Bucket(settings.remote)
    seconds = bucket.submit(bucket.probe()).result()
    detail = f"{bucket.url} can be listed, written to and read, {seconds * 1000:.0f} ms away"
    return [Finding("bucket", True, detail)]


def check_model(settings: Settings) -> list[Finding]:
    folder = resolve_model(settings.model, settings.cache_dir)
    flaw = find_flaw(folder, full=True) if settings.model.startswith(BUNDLED) else None
    if flaw is not None:
        return [Finding("model", False, f"{flaw}; delete {folder} and it is converted again")]
    return [Finding("model", True, f"{settings.model} in {folder}")]


def check_embedder(settings: Settings) -> list[Finding]:
    return [Finding("embedder", True, f"{settings.embedder} in {resolve_embedder(settings.embedder)}")]


def check_strategies(settings: Settings) -> list[Finding]:
    """Those that the settings name, by what makes them."""
    from app.cli.engine_check import check_names  # it imports torch

    return check_names(settings)


def check_engine(settings: Settings) -> list[Finding]:
    """The engine of the settings on their model, device and number format."""
    from app.cli.engine_check import ENGINE_CHECKS, check_torch  # it imports torch

    return ENGINE_CHECKS.get(settings.engine, check_torch)(settings)


CHECKS: tuple[Check, ...] = (
    check_versions,
    check_cache_folder,
    check_disk,
    check_kv,
    check_bucket,
    check_model,
    check_embedder,
    check_strategies,
    check_engine,
)


@configured(..., "engine", "model", "device", "dtype", "cache_dir")
def doctor(
    settings: Settings,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check that this installation can work; exit code 1 when something is amiss."""
    findings = examine(settings, CHECKS)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{'✓' if finding.ok else '✗'} {finding.name}: {finding.detail}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
