"""Three short documents that come with the program, for the demonstration and for benchmarks without data."""

from __future__ import annotations

from importlib.resources import files


def read_samples() -> dict[str, str]:
    """Texts by file name, in the order of the names."""
    found = sorted((entry for entry in files(__name__).iterdir() if entry.name.endswith(".md")), key=lambda e: e.name)
    return {entry.name: entry.read_text(encoding="utf-8") for entry in found}
