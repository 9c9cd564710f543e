"""What a benchmark is asked, declared once: as the fields of a dataclass.

`ragcache bench NAME` has a flag for each of them, and its JSON the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

SEED = "Of everything that is drawn at random."
ROUNDS = "Rounds, each with every case once."
CHUNK_TOKENS = "Longest chunk."
TOKENS = "Lengths to measure, with commas between them."
LINKERS = "With commas between them; settings as in query:first=8,ratio=0.1."
LINKER = "Of the linked requests."
DATA = "As for quality; the sample documents when left out."
OF_SETTINGS = ("engine", "model", "device", "dtype", "cache_dir")  # of all settings, those with a flag

Read = Callable[[str, str], Any]  # from a flag's text and its name to its value. Raises ConfigError.


def option(
    default: Any,
    help: str,
    *,
    read: Read | None = None,
    kind: type | None = None,
    flag: str | None = None,
    least: float | None = None,
    told: bool = True,
) -> Any:
    """A field of BenchOptions.

    `default` is as it is written on the command line where `read` makes the value, and MISSING where one must be given.
    `kind` is the type of a value that is None by default. Paths are not `told` in the JSON, nor is how a run goes on.
    """
    made = {"default_factory": lambda: read(default, "")} if read else {"default": default}
    metadata = {"default": default, "help": help, "read": read, "kind": str if read else kind or type(default)}
    return field(**made, kw_only=not told, metadata=metadata | {"flag": flag, "least": least, "told": told})


@dataclass(frozen=True)
class BenchOptions:
    """The docstring of a kind is the help of its command."""

    of_settings: ClassVar[tuple[str, ...]] = OF_SETTINGS[1:]

    def settings(self) -> dict[str, Any]:
        """The settings of the figures, those by default too."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.metadata["told"]}
        # Linkers, by what was written.
        return {name: _described(value) if isinstance(value, Mapping) else value for name, value in found.items()}


def _described(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: repr(value) for name, value in values.items()}
