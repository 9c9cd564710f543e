"""Flags of the commands over collections, beside those of `flags.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[Path | None, typer.Option(help="Where the catalog and the indexes are kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str | None, typer.Option("--collection", "-c", help="The collection; RAGCACHE_COLLECTION by default.")]
