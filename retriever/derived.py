"""An index that follows a Source and can always be made again from it."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from retriever import IntArray, RetrieverError, Vectors
from retriever.generations import Generations, Manifest
from retriever.source import Position, Source

LEAST_TO_SAVE = 2048  # changes; below that a restart catches up in less time than a save takes
PART_TO_SAVE = 8  # changes for each of the live chunks: so all saves together write each chunk a few times
# The same at the end of an ingest or a removal. A chunk takes a start, which indexes it again, some 200 times as long
# as a save, so both come to the same, and to little beside the embedding.
PART_AT_END = 256
_SETTLING = 10  # rounds; a source that changes without pause is followed as far as it was
_AT_ONCE = 1 << 20  # ids that are removed together: each time all that is there may be gone through
log = logging.getLogger(__name__)


class DerivedIndex(ABC):
    """Chunks by id, in a structure to search them. Safe for threads: every public method takes the lock.

    Whoever changes it or writes its file has the turn, and whoever changes it has the lock within: so what is written
    stays as it is meanwhile, and searches go on. A subclass keeps the structure: `_add` and `_remove` may be asked for
    what is there or gone already and leave it so.
    """

    def __init__(self, identity: str, generations: Generations | None) -> None:
        """With no generations it lives in memory alone. Nothing is read before the first `catch_up`."""
        self._identity = identity
        self._generations = generations
        self._position: Position | None = None  # None until it has been opened
        self._saved: Position | None = None  # of the file that this object read or wrote last
        self._at_rest = False  # whether it was held against its source since that moved last
        self._unsaved = 0  # changes that the file lacks, and chunks of it that have another structure now
        self._tried = 0  # of them, when a save failed or was another's turn
        self._distrusted = False  # the file on disk must not stand, whatever it says of itself
        self._over: bytes | None = None  # the mark of that file; one that another process has written since may
        self._turn, self._lock = threading.Lock(), threading.RLock()

    @property
    def position(self) -> Position:
        """How far it follows its source."""
        with self._lock:
            return self._position or Position()

    @property
    @abstractmethod
    def live(self) -> int:
        """Chunks in it."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """What it takes in memory, about. It waits for no lock."""

    @abstractmethod
    def check_integrity(self) -> None:
        """Asserts what must hold inside."""

    def catch_up(self, source: Source, target: Position | None = None) -> None:
        """Follow the source to where it stands, or at least to `target` where that was just asked for."""
        with self._lock:
            position = self._position if self._at_rest else None
        if position is not None and position == (target or source.position()):
            return  # without the turn, which a save may have
        with self._turn:
            with self._lock:
                if self._position is None:
                    self._open(source)
                if not self._at_rest or self._position != (target or source.position()):
                    self._follow(source)
            self._save_when_due()

    def rebuild(self, source: Source) -> None:
        """Forget everything and take it from the source again."""
        with self._turn:
            with self._lock:
                self._start_over()
                self._follow(source)
            self._save_when_due()

    def save(self) -> bool:
        """Write what has changed, if anything; says whether a file was written. Raises RetrieverError."""
        with self._turn:
            return self._save_now()

    def save_if_due(self) -> bool:
        """The same at the end of changes, unless they are few beside what would be written: whoever opens the file
        catches up with them.
        """
        with self._turn:
            few = self._unsaved * PART_AT_END < max(self.live, 1) and not self._distrusted
            return not few and self._save_now()

    def discard(self) -> bool:
        """Delete the file where it is not to be trusted, and say whether it was not. Nothing is read or built. Raises
        RetrieverError.
        """
        try:
            return self._generations is not None and self._generations.discard(self._identity)
        except OSError as error:
            assert self._generations is not None
            raise RetrieverError(
                f"cannot delete an index in {self._generations.folder}: {error}. Delete the folder"
            ) from error

    def sweep(self) -> None:
        """Delete files that a writer that was killed has left. Raises RetrieverError."""
        try:
            if self._generations is not None:
                self._generations.sweep()
        except OSError as error:
            assert self._generations is not None
            raise RetrieverError(
                f"cannot delete an old index in {self._generations.folder}: {error}. Delete the folder"
            ) from error

    def saved(self) -> Position | None:
        """How far the file on the disk follows its source: not at all where it is not to be trusted. None where there
        is none. Raises RetrieverError.
        """
        if self._generations is None:
            return None
        try:
            return self._generations.position(self._identity) or Position() if self._generations.exists() else None
        except OSError as error:
            raise RetrieverError(
                f"cannot read an index in {self._generations.folder}: {error}. Make it readable, or delete the folder"
            ) from error

    @abstractmethod
    def _add(self, ids: IntArray, texts: list[str], vectors: Vectors) -> int:
        """How many chunks of the file are in another structure now, which would be made again at each start."""

    @abstractmethod
    def _remove(self, ids: IntArray) -> None: ...

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _settle(self) -> int:
        """After changes: another structure where the size asks for it, of how many chunks."""

    @abstractmethod
    def _purge(self) -> None:
        """Before it is written, with the turn: what was removed, and is only marked so, goes."""

    @abstractmethod
    def _agrees(self, source: Source) -> bool:
        """Whether what was read from a file is of this source: a look at one chunk."""

    @abstractmethod
    def _write(self, path: Path) -> None:
        """Raises OSError."""

    @abstractmethod
    def _read(self, path: Path, manifest: Manifest) -> None:
        """Raises Distrusted, and leaves the index as it was then."""

    @abstractmethod
    def _details(self) -> Mapping[str, Any]:
        """What the manifest keeps for `_read`."""

    def _open(self, source: Source) -> None:
        self._start_over()
        if self._generations is None:
            return
        self._distrusted = self._generations.exists()
        loaded = self._generations.load(self._identity, self._load)
        if loaded is None:
            return
        self._position, self._saved, self._distrusted, self._over = loaded, loaded, False, None
        if not self._agrees(source):
            self._restart("it is of another history than its source")

    def _load(self, path: Path, manifest: Manifest) -> Position:
        self._read(path, manifest)
        return manifest.position

    def _start_over(self) -> None:
        self._clear()
        self._position, self._saved, self._distrusted, self._at_rest = Position(), None, True, False
        self._over = None if self._generations is None else self._generations.mark()
        self._unsaved = self._tried = 0

    def _follow(self, source: Source) -> None:
        """Until the source has not moved meanwhile: half of a change would show an old chunk beside its new one. What
        was missed of a log that was shortened shows by the number of chunks.
        """
        self._at_rest = self._advance(source)
        if self._at_rest and self.live != self.position.live:
            self._restart(f"it held {self.live} chunks where its source has {self.position.live}")
            self._at_rest = self._advance(source)
        if self._unsaved:
            self._unsaved += self._settle()

    def _advance(self, source: Source) -> bool:
        """Whether the source has come to rest."""
        for _ in range(_SETTLING):
            target = source.position()
            if target == self._position:
                return True
            self._apply(source, target)
        return False

    def _apply(self, source: Source, target: Position) -> None:
        if target.high < self.position.high or target.retired < self.position.retired:
            self._restart("its source has a shorter history than before")
        high, retired = self.position.high, self.position.retired
        if not high:  # what is gone already is not added
            retired = target.retired
        for ids, texts, vectors in source.added(high):
            self._unsaved += self._add(ids, texts, vectors) + len(ids)
            high = int(ids[-1])
            self._position = Position(high, retired, self.live)
        for gone, last in _gathered(source, retired):
            self._remove(gone)
            self._unsaved += len(gone)
            self._position = Position(high, retired := last, self.live)
        self._position = Position(max(high, target.high), max(retired, target.retired), target.live)

    def _restart(self, reason: str) -> None:
        log.warning("an index%s is made again: %s", self._generations or "", reason)
        self._start_over()

    def _save_when_due(self) -> None:
        """A save that fails or is another's turn costs the next start some time, and nothing else."""
        least = max(LEAST_TO_SAVE, self.live // PART_TO_SAVE)
        if self._generations is None or self._unsaved - self._tried < least:
            return
        self._tried = self._unsaved  # so that not every query tries again
        try:
            self._save(wait=0)
        except OSError as error:
            log.warning("an index%s was not saved: %s", self._generations, error)

    def _save_now(self) -> bool:
        try:
            return self._save(wait=-1)
        except OSError as error:
            assert self._generations is not None
            raise RetrieverError(
                f"cannot save an index in {self._generations.folder}: {error}. Free some space or make it writable"
            ) from error

    def _save(self, wait: float) -> bool:
        """With the turn and without the lock."""
        if self._generations is None or self._position is None:
            return False
        if not self._distrusted and self._position == Position():
            return False
        if wait >= 0 and self._saved == self._position:  # else the disk is asked: others write there too
            return False
        self._purge()
        written = self._generations.publish(
            self._identity, self._position, self._details(), self._write, over=self._over, wait=wait
        )
        if written or wait < 0:  # or another process has saved as much
            self._saved, self._distrusted, self._over = self._position, False, None
            self._unsaved = self._tried = 0
        return written


def _gathered(source: Source, after: int) -> Iterator[tuple[IntArray, int]]:
    """Ids of what was retired since, many together, with the number of the last of each."""
    ids: list[int] = []
    while page := source.retired(after):
        ids += [chunk for _, chunk in page]
        after = page[-1][0]
        if len(ids) >= _AT_ONCE:
            yield np.array(ids, dtype=np.int64), after
            ids = []
    if ids:
        yield np.array(ids, dtype=np.int64), after
