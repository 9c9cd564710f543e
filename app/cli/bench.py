"""`ragcache bench …`: the commands of the benchmarks package."""

from __future__ import annotations

from benchmarks.cli import app as bench

__all__ = ["bench"]
