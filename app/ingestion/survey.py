"""What there is to read, and what has lost its files: those that are there now against the documents that are in.

No file is read for it. Files that are gone are told apart from files that are only out of reach: a disk that is not
mounted leaves an empty folder or none, so where nothing is left of what was below a named path, nobody knows whether
somebody has deleted it all. Of other folders only the system's own table of disks tells.

Room on the disk: what an ingest will need, told before it starts, and its end before there is none left.
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
from app.library.catalog.records import Collection, FileState
from app.loaders.discovery import WalkTally, discover
from app.settings import GIB, Settings, free_bytes
from ragcache.host import MOUNTS, mount_point
from retriever.shared_property import shared_property
from splitter import parse_spec

TOLD = 5  # suffixes of files that nothing reads
LONGEST = 12  # of a suffix, in characters
FSTAB = Path("/etc/fstab")
# Kept free for everybody else on the machine, and for the catalog, which is written last.
RESERVE = 256 << 20
TEXT = {".txt", ".md", ".markdown", ".csv", ".tsv", ".json", ".jsonl", ".py", ".rst", ".log"}
# Bytes of a file for each token, about: of plain texts, and of formats with pictures, fonts and markup in them.
PER_TOKEN, PER_TOKEN_OTHERS = 4, 30
CHARACTERS = 3  # of a text for each token at least, in most languages
VARIANTS = 2  # a long document has a lead variant of each chunk too
# Of the catalog for each character: its own bytes in the text and in the chunks, and what stands beside them.
PER_CHARACTER = 4
SENTENCE = 20  # characters of a short one: rows and turns are sentences too
FULL = 1 / 2  # how much of its limit a chunk takes, about, where chunks are small
LOGGED = 2  # what SQLite writes of each change: to its log, and then to the catalog
COPIES = 2  # of a chunk's vector, in the catalog and in the index


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


class Room:
    """Of one ingest, with or without KV."""

    def __init__(self, settings: Settings, kv: bool, collection: Collection):
        self._settings, self._collection = settings, collection
        self._kv = kv and settings.disk_bytes > 0

    @shared_property
    def _per_token(self) -> float:
        """Bytes of KV. Asked for when there is a file to read: it imports torch."""
        if not self._kv:
            return 0.0
        from app.ingestion.estimate import bytes_per_token

        return bytes_per_token(self._settings)

    @property
    def per_character(self) -> float:
        """Bytes of the catalog and the index. Vectors take most of them: of chunks, in 4 bytes a number, and of their
        sentences, in one and 4 for the scale. SQLite writes all of a transaction to its log first.
        """
        longest = _limit(self._collection.splitter_settings.get("max_tokens"), self._settings.chunk_tokens)
        own = parse_spec(self._collection.splitter)[1].get("chunk_size")  # of a node parser, whose nodes are cut above
        chunk = CHARACTERS * min(longest, _limit(own, longest)) * FULL
        dimension = self._collection.dimension
        return LOGGED * (PER_CHARACTER + (dimension + 4) / SENTENCE + COPIES * 4 * dimension / chunk)

    def warning(self, files: Iterable[Pending]) -> str | None:
        """By the sizes of the files alone, so roughly."""
        tokens = sum(file.size / _per_token(file.source) for file in files)
        needed = int(tokens * self._per_token * VARIANTS)
        free, budget = free_bytes(self._settings.kv_folder), self._settings.disk_bytes
        if needed > budget:
            return (
                f"these files may come to {needed / GIB:,.1f} GiB of KV, and RAGCACHE_DISK_BYTES keeps "
                f"{budget / GIB:,.1f} GiB: older KV makes room for new. `--dry-run` tells more, `--no-kv` leaves it out"
            )
        if needed + RESERVE > free:
            return (
                f"these files may come to {needed / GIB:,.1f} GiB of KV, and the disk of {self._settings.cache_dir} "
                f"has {free / GIB:,.1f} GiB free: the ingest will stop before it is full. `--dry-run` tells more"
            )
        return None

    def check(self, characters: int) -> None:
        """Before a document of so many is written. Raises IngestError where that would fill a disk."""
        kv = int(characters / CHARACTERS * self._per_token * VARIANTS)
        self._check(self._settings.cache_dir, min(kv, self._settings.disk_bytes) if kv else 0)
        if self._settings.database_url is None:
            self._check(self._settings.data_dir, int(characters * self.per_character))

    def _check(self, folder: Path, needed: int) -> None:
        free = free_bytes(folder)
        if needed + RESERVE > free:
            raise IngestError(
                f"the disk of {folder} is nearly full: {free / GIB:,.2f} GiB are free, and the next document may need "
                f"{needed / GIB:,.2f} beside a reserve of {RESERVE / GIB:,.2f}. Free some space and run the "
                "same command again: what is in stays, and it goes on there"
            )


def _limit(value: object, default: int) -> int:
    return int(value) if isinstance(value, int) and value > 0 else default


def _per_token(source: str) -> int:
    return PER_TOKEN if Path(source).suffix.lower() in TEXT else PER_TOKEN_OTHERS
