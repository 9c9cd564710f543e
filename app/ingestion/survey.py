"""What there is to read: the files that are there now against the documents that are in, without reading any."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import printable
from app.ingestion.outcome import time_of_change
from app.ingestion.records import Failure, IngestOptions
from app.library.catalog.records import FileState
from app.loaders.discovery import WalkTally, discover

TOLD = 5  # suffixes of files that nothing reads
LONGEST = 12  # of a suffix, in characters


@dataclass(frozen=True)
class Pending:
    """A file to be read."""

    source: str  # absolute, without links, so that a file is one document whatever way led to it
    size: int
    state: FileState | None  # of the document that it is already

    @property
    def known_hash(self) -> str | None:
        return self.state.content_hash if self.state else None

    @property
    def is_ready(self) -> bool:
        """Whether there is a document of an older version of it."""
        return self.state is not None and self.state.state == "ready"


@dataclass
class FolderSurvey:
    pending: list[Pending] = field(default_factory=list)
    unchanged: int = 0
    skipped: int = 0
    failures: list[Failure] = field(default_factory=list)
    unlisted: tuple[Path, ...] = ()  # folders that may hold anything
    own: tuple[Path, ...] = ()  # folders of this program that were left out
    unknown: Counter[str] = field(default_factory=Counter)  # files by their suffix, which no loader reads

    def unread(self) -> str:
        """What to know of the files that no loader reads; "" where there are none."""
        if not self.unknown:
            return ""
        by_number = sorted(self.unknown.items(), key=lambda pair: (-pair[1], pair[0]))
        suffixes = ", ".join(f"{_shown(suffix)} ({number:,})" for suffix, number in by_number[:TOLD])
        number, rest = self.unknown.total(), ", …" if len(by_number) > TOLD else ""
        left_out = "1 file is" if number == 1 else f"{number:,} files are"
        return f"{left_out} left out, since no loader reads {suffixes}{rest}: convert what should be in"


def take_survey(
    paths: Iterable[Path], options: IngestOptions, states: Mapping[str, FileState], own: Iterable[Path] = ()
) -> FolderSurvey:
    """A file of the same size and time of change as before is taken for unchanged; any other is read and compared."""
    survey, tally, real = FolderSurvey(), WalkTally(), RealNames()
    for path in discover(paths, options.glob, tally, own):
        source = real.of(path)
        state = states.get(source)
        size, mtime_ns = _stamp(source)
        if state is None or (state.size, state.mtime_ns) != (size, mtime_ns):
            survey.pending.append(Pending(source, size, state))
        elif state.state == "ready":
            survey.unchanged += 1
        elif options.retry_failed:
            survey.pending.append(Pending(source, size, state))
        else:
            survey.skipped += 1
    survey.failures += [Failure(str(problem.path), problem.reason) for problem in tally.problems]
    survey.unlisted = tuple(tally.unlisted)
    survey.own, survey.unknown = tuple(tally.own), tally.unknown
    return survey


class RealNames:
    """Paths without links. Each folder is looked up once."""

    def __init__(self) -> None:
        self._folders: dict[Path, str] = {}

    def of(self, path: Path) -> str:
        if path.name in ("", "..") or path.is_symlink():
            return os.path.realpath(path)
        folder = self._folders.get(path.parent)
        if folder is None:
            folder = self._folders[path.parent] = os.path.realpath(path.parent)
        return str(Path(folder, path.name))


def _shown(suffix: str) -> str:
    told = printable(Path(suffix)) if suffix else "files without a suffix"
    return told if not suffix or len(told) <= LONGEST else f"{told[:LONGEST]}…"


def _stamp(source: str) -> tuple[int, int]:
    """Size and time of change; what cannot be looked at is left to whoever reads it to tell."""
    try:
        told = Path(source).stat()
    except OSError:
        return 0, -1
    return told.st_size, time_of_change(told)
