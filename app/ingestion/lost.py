"""Which documents have lost their files, told apart from files that are only out of reach.

A disk that is not mounted leaves an empty folder or none: where nothing is left of what was below a named path, nobody
knows whether somebody has deleted it all. Of other folders only the system's own table of disks tells.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from app.errors import IngestError, printable
from app.ingestion.survey import RealNames
from app.library.catalog.records import FileState
from ragcache.mounts import MOUNTS, mount_point

FSTAB = Path("/etc/fstab")


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
        raise IngestError(
            f"none of the {number:,} files that were below {printable(Path(root))} is there now: is its disk mounted? "
            "Nothing is deleted; if they are meant to go, use --prune=all"
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
