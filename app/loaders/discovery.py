"""Which files a command line means: files as they are named, and what folders hold, in an order that never changes."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import LoadError
from app.loaders import format_of
from app.loaders.encodings import is_binary

HEAD = 1 << 12  # bytes of a file that tell whether it is a text


@dataclass
class WalkTally:
    """What a walk left out; filled while it goes on."""

    hidden: int = 0  # files and folders whose names start with a dot
    unknown: Counter[str] = field(default_factory=Counter)  # files by their suffix, which no loader reads
    unmatched: int = 0  # files that match none of the patterns
    repeated: int = 0  # links to, and second mentions of, what was found already
    own: list[Path] = field(default_factory=list)  # folders that the program keeps its files in
    problems: list[LoadError] = field(default_factory=list)  # unreadable folders, dead links
    unlisted: list[Path] = field(default_factory=list)  # the folders among them


def discover(
    paths: Iterable[Path], globs: Sequence[str] = (), tally: WalkTally | None = None, own: Iterable[Path] = ()
) -> Iterator[Path]:
    """Files to load, each once: folders are walked, other paths are given as they are, for `load` to judge.

    In folders hidden names and unknown formats are left out, and with `globs` all that match none of them. A pattern
    with a slash is matched against the path below the named folder, where `**` stands for any folders; one without
    against the name. Links are followed after all that is no link, so that a file is found under its own name first.
    `own` folders, which hold what the program has made of documents, are left out, whatever way leads to them.
    """
    return _Walk(globs, tally if tally is not None else WalkTally(), own).files(paths)


@dataclass(frozen=True)
class _Entry:
    path: Path  # as it was reached
    real: str  # without links
    is_folder: bool


class _Walk:
    def __init__(self, globs: Sequence[str], tally: WalkTally, own: Iterable[Path]) -> None:
        self._patterns = [(_pattern(glob), "/" in glob) for glob in globs]
        self._tally = tally
        self._own = {os.path.realpath(folder) for folder in own}
        self._seen: set[str] = set()
        self._links: list[tuple[Path, Path]] = []  # with the folder that was named

    def files(self, paths: Iterable[Path]) -> Iterator[Path]:
        for path in paths:
            if path.is_dir():
                yield from self._folder(path, path)
            elif self._first(os.path.realpath(path)):
                yield path
        while self._links:
            links, self._links = self._links, []
            for link, root in links:
                yield from self._link(link, root)

    def _folder(self, folder: Path, root: Path) -> Iterator[Path]:
        """Depth first, without recursion: folders nest deeper than Python may call."""
        stack = [_Entry(folder, os.path.realpath(folder), is_folder=True)]
        while stack:
            entry = stack.pop()
            if entry.is_folder:
                if entry.real in self._own:
                    self._tally.own.append(entry.path)
                elif self._first(entry.real):
                    stack.extend(reversed(self._entries(entry, root)))
            elif self._wanted(entry.path, root) and self._first(entry.real):
                yield entry.path

    def _entries(self, folder: _Entry, root: Path) -> list[_Entry]:
        """What a folder holds in the order of its names' bytes; links are put aside."""
        try:
            with os.scandir(folder.path) as found:
                entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
        except OSError as error:
            reason = f"cannot be listed ({error.strerror or error}): check that it is there and its permissions"
            self._tally.problems.append(LoadError(folder.path, reason))
            self._tally.unlisted.append(folder.path)
            return []
        shown = [entry for entry in entries if not entry.name.startswith(".")]
        self._tally.hidden += len(entries) - len(shown)
        self._links.extend((folder.path / entry.name, root) for entry in shown if entry.is_symlink())
        return [
            _Entry(folder.path / entry.name, str(Path(folder.real, entry.name)), entry.is_dir(follow_symlinks=False))
            for entry in shown
            if not entry.is_symlink()
        ]

    def _link(self, link: Path, root: Path) -> Iterator[Path]:
        try:
            folder = stat.S_ISDIR(link.stat().st_mode)
        except OSError as error:  # to nothing, or in a circle
            reason = f"is a symbolic link that leads nowhere ({error.strerror or error}): remove it"
            self._tally.problems.append(LoadError(link, reason))
            return
        if self._is_own(link) and not self._is_own(root):
            self._tally.own.append(link)
        elif folder:
            yield from self._folder(link, root)
        elif self._wanted(link, root) and self._first(os.path.realpath(link)):
            yield link

    def _is_own(self, path: Path) -> bool:
        """At or below one of the program's folders; documents may have been put there on purpose."""
        real = os.path.realpath(path)
        return not self._own.isdisjoint({real, *map(str, Path(real).parents)})

    def _wanted(self, path: Path, root: Path) -> bool:
        below = path.relative_to(root).as_posix()
        if self._patterns and not any(p.fullmatch(below if whole else path.name) for p, whole in self._patterns):
            self._tally.unmatched += 1
            return False
        if format_of(path) is None or (not path.suffix and _is_binary(path)):
            self._tally.unknown[path.suffix.lower()] += 1
            return False
        return True

    def _first(self, real: str) -> bool:
        if real in self._seen:
            self._tally.repeated += 1
            return False
        self._seen.add(real)
        return True


def _is_binary(path: Path) -> bool:
    """Whether a file that only its name tells to be a text is none, by its start; what cannot be read tells nothing."""
    try:
        # Not to block: opening a named pipe would wait for someone to write to it.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            head = file.read(HEAD) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return False
    return is_binary(path, head)


def _pattern(glob: str) -> re.Pattern[str]:
    """`*` and `?` within a name, `[…]` sets, `**` across folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\])", glob.removeprefix("./"))
    known = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(known.get(part) or _set_or_text(part) for part in parts), re.DOTALL)


def _set_or_text(part: str) -> str:
    if len(part) > 2 and part.startswith("[") and part.endswith("]"):
        inner = part[1:-1]
        negated = inner.startswith("!")
        return f"[{'^' if negated else ''}{re.escape(inner.removeprefix('!')).replace(chr(92) + '-', '-')}]"
    return re.escape(part)
