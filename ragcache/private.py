"""Files and folders for their owner alone, whatever the umask; what is there already keeps the modes that it was given.

The documents of a user, and what is computed from them, are read by nobody else unless the user says so.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

FILE, FOLDER = 0o600, 0o700


def private_folder(folder: Path) -> None:
    """Make it and its parents where they are not there. Raises OSError."""
    missing = [folder, *folder.parents]
    while missing and missing[-1].is_dir():
        missing.pop()
    for one in reversed(missing):
        one.mkdir(mode=FOLDER, exist_ok=True)


def private_file(path: Path) -> None:
    """An empty one where none is, in a private folder, before a library makes it readable for all. Raises OSError.

    One that is there is not even opened: to close it would give up the locks that this process holds on it, and a
    catalog without SQLite's locks loses its log to the next process.
    """
    private_folder(path.parent)
    with suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE))
