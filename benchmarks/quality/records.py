"""Results so far, in a file beside the output: what an interrupted run has done is not done again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragcache.errors import ConfigError

Record = dict[str, Any]


def settings_key(settings: Mapping[str, Any]) -> str:
    """Results of one key can be put together."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


class Partial:
    """One JSON line per question. A line is whole or, when the run was killed in the middle of it, dropped."""

    def __init__(self, out: Path, key: str, resume: bool):
        """Without `resume` an earlier file is replaced; with it, its results of other settings alone are dropped."""
        self.path = out.with_name(f"{out.name}.partial.jsonl")
        self._key = key
        self.records: dict[str, Record] = self._read() if resume else {}
        self._write_all()

    def append(self, name: str, record: Record) -> None:
        self.records[name] = record
        with self.path.open("a", encoding="utf-8") as file:
            file.write(self._line(name, record))
            file.flush()
            os.fsync(file.fileno())

    def remove(self) -> None:
        """When the results stand in the output."""
        self.path.unlink(missing_ok=True)

    def _line(self, name: str, record: Record) -> str:
        return json.dumps({"key": self._key, "name": name, "record": record}) + "\n"

    def _read(self) -> dict[str, Record]:
        if not self.path.is_file():
            return {}
        found: dict[str, Record] = {}
        for line in self.path.read_bytes().split(b"\n")[:-1]:  # what follows the last line break is torn
            try:
                entry = json.loads(line)
                if entry["key"] == self._key:
                    found[entry["name"]] = entry["record"]
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{self.path} cannot be read ({error}): run without --resume") from error
        return found

    def _write_all(self) -> None:
        """Whole lines only, so that the next one is not appended to a torn one."""
        beside = self.path.with_name(f"{self.path.name}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text("".join(self._line(*item) for item in self.records.items()), encoding="utf-8")
            beside.replace(self.path)
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {error}; name another place with --json") from error
