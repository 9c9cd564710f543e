"""What there is to read, and what has lost its files: those that are there now against the documents that are in.

No file is read for it. Files that are gone are told apart from files that are only out of reach: a disk that is not
mounted leaves an empty folder or none, so where nothing is left of what was below a named path, nobody knows whether
somebody has deleted it all. Of other folders only the system's own table of disks tells.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import IngestError, printable
from app.ingestion import Failure, IngestOptions
from app.ingestion.worker import time_of_change
from app.library.catalog.records import FileState
from app.loaders.base import ParseLimits
from app.loaders.discovery import WalkTally, discover
from ragcache.host import MOUNTS, mount_point

TOLD = 5  # suffixes of files that nothing reads
LONGEST = 12  # of a suffix, in characters
FSTAB = Path("/etc/fstab")


@dataclass(frozen=True)
class Pending:
    """A file to be read."""

    source: str  # absolute, without links, so that a file is one document whatever way led to it; or as it is called
    size: int
    state: FileState | None  # of the document that it is already
    path: str = ""  # where the file is, when the source does not tell

    @property
    def readable(self) -> int:
        """Bytes that may become a document: none of a file that every loader refuses for its size."""
        return self.size if self.size <= ParseLimits().max_bytes else 0

    @property
    def growth(self) -> int:
        """Bytes that it has more than the document that it is already."""
        known = self.state.size if self.state is not None and self.is_ready else 0
        return max(0, self.readable - known)

    @property
    def known_hash(self) -> str | None:
        return self.state.content_hash if self.state else None

    @property
    def is_ready(self) -> bool:
        """Whether there is a document of an older version of it."""
        return self.state is not None and self.state.state == "ready"

    def keeps_older(self, to_blame: bool) -> bool:
        """Whether the document stays where the file cannot be read. `to_blame`: for what it holds. A file on the disk
        no longer says then what its document says; one that was sent under the name of a document is only a bad one.
        """
        return self.is_ready and (bool(self.path) or not to_blame)


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


def named_survey(files: Mapping[Path, str], states: Mapping[str, FileState]) -> FolderSurvey:
    """Of files that are documents by other names than their own."""
    sized = [(str(path), source, _stamp(str(path))[0]) for path, source in files.items()]
    return FolderSurvey([Pending(source, size, states.get(source), path) for path, source, size in sized])


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


@dataclass(frozen=True)
class Lost:
    """Documents whose files are gone, by source, and the named paths below which nothing is left."""

    documents: Mapping[str, int]  # source and id of those that may go
    absent: Mapping[str, int]  # folders that are not there or not mounted, with how many documents stay for that
    emptied: Mapping[str, int]  # paths that are there, with how many documents they had

    def refuse_emptied(self) -> None:
        """Raises IngestError."""
        if not self.emptied:
            return
        root, number = next(iter(self.emptied.items()))
        where = f"below {printable(Path(root))} is"
        told = (
            f"none of the {number:,} files that were {where}" if number > 1 else f"the only file that was {where} not"
        )
        raise IngestError(
            f"{told} there now: is its disk mounted? Nothing is deleted; if they are meant to go, use --prune=all"
        )


def lost_documents(
    paths: Sequence[Path],
    states: Mapping[str, FileState],
    unlisted: Iterable[Path] = (),
    everything: bool = False,
    fstab: Path = FSTAB,
) -> Lost:
    """At or below the paths. `everything` trusts what is seen; what is below an unlisted folder stays in any case."""
    real = RealNames()
    roots, unknown = {real.of(path) for path in paths}, {real.of(path) for path in unlisted}
    below: dict[str, list[str]] = {}  # sources by root
    gone: dict[str, set[str]] = {}  # those whose files are gone, with the roots above
    for source in states:
        above = {source, *map(str, Path(source).parents)}
        for root in above & roots:
            below.setdefault(root, []).append(source)
        if above & roots and not above & unknown and _is_gone(source):
            gone[source] = above & roots
    bare, unmounted = set[str](), set[str]()
    if not everything:
        bare = {root for root, own in below.items() if gone.keys() >= {*own} and _is_bare(root, own)}
        unmounted = _unmounted(fstab, {str(folder) for source in gone for folder in Path(source).parents})
    emptied = {root for root in bare if not _is_gone(root) or root in states}
    absent = Counter(point for source in gone for point in unmounted.intersection(map(str, Path(source).parents)))
    absent |= {root: len(below[root]) for root in bare - emptied}
    return Lost(
        {
            source: states[source].id
            for source, above in gone.items()
            if not above & bare and unmounted.isdisjoint(map(str, Path(source).parents))
        },
        dict(sorted(absent.items())),
        {root: len(below[root]) for root in sorted(emptied)},
    )


def _unmounted(fstab: Path, folders: Set[str]) -> set[str]:
    """Those of the folders that are places of disks which the system knows and which are not there now.

    No other place is looked at, and none that has its disk: a server that does not answer would keep us waiting.
    """
    mounted = _points(MOUNTS) if folders else set()
    known = {os.path.realpath(point) for point in _points(fstab) if folders and os.path.normpath(point) not in mounted}
    return {point for point in known & folders if not os.path.ismount(point)}


def _points(table: Path) -> set[str]:
    """Of disks. People write them in fstab with slashes too many, or through links."""
    try:
        lines = table.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return set()
    rows = [fields for line in lines if len(fields := line.split()) > 1 and not fields[0].startswith("#")]
    return {point for row in rows if (point := mount_point(row[1])).startswith("/")}


def _is_bare(root: str, own: Sequence[str]) -> bool:
    """Whether a disk may be missing, where all files below a root are gone. Of a named file the folder tells."""
    if list(own) != [root]:
        return True
    try:
        return next(Path(root).parent.iterdir(), None) is None
    except OSError:
        return True


def _is_gone(source: str) -> bool:
    """Not merely out of reach."""
    try:
        Path(source).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
