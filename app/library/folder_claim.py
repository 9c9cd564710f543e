"""Whose a data folder is. What clients have sent lies in it, and goes when the catalog knows nothing of it: of two
catalogs over one folder, each would delete what the other's clients have sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from app.errors import CatalogError
from app.library.catalog.database import database_url, location
from app.settings import Settings, variable
from ragcache.host import FILE, private_file, private_folder, put

MARKER, LOCK = "owner", "owner.lock"
_ELSEWHERE = "postgresql://"  # whether such a catalog is still there nobody sees


def claim(settings: Settings) -> None:
    """For the catalog of the settings, until that is there no more. Raises CatalogError where it is another one's."""
    folder = settings.data_dir
    try:
        private_folder(folder)
        with FileLock(folder / LOCK, mode=FILE):
            own, other = _own(settings), claimed_by_another(settings)
            if other is not None:
                raise CatalogError(
                    f"the data folder {folder} has the files of the catalog {other}, and {own} would delete them: give "
                    f"each catalog a {variable('data_dir')} of its own, or delete {folder / MARKER} if it is the same"
                )
            if _owner(folder) != own:
                fresh = folder / f"{MARKER}.tmp"
                private_file(fresh)
                fresh.write_bytes(os.fsencode(own))
                put(fresh, folder / MARKER)
    except OSError as error:
        told = error.strerror or error
        raise CatalogError(f"cannot write in the data folder {folder}: {told}; set {variable('data_dir')}") from error


@contextmanager
def is_own(settings: Settings) -> Iterator[bool]:
    """Whether the catalog has claimed the folder; until the end of the block no other one does. Raises CatalogError and
    OSError.
    """
    folder, own = settings.data_dir, _own(settings)
    if _owner(folder) != own:  # a folder that nobody has claimed is not written to
        yield False
        return
    with FileLock(folder / LOCK, mode=FILE):
        yield _owner(folder) == own


def claimed_by_another(settings: Settings) -> str | None:
    """Its name. A file that was moved is no other one: nothing is left where it was."""
    folder = settings.data_dir
    own, found = _own(settings), _owner(folder)
    if found in ("", own) or not (found.startswith(_ELSEWHERE) or _is_there(folder / found)):
        return None
    return None if _is_one_file(folder / found, folder / own) else found


def _owner(folder: Path) -> str:
    marker = folder / MARKER
    try:
        found = os.fsdecode(marker.read_bytes())
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CatalogError(f"whose the data folder is cannot be read in {marker}: {error.strerror or error}") from error
    if "\0" in found:  # which no name has: a disk leaves it of a file when the power goes
        raise CatalogError(f"{marker}, which says whose the data folder is, is damaged: delete it if {folder} is yours")
    return found


def _own(settings: Settings) -> str:
    """Within the folder by its name there, so that both may be moved together."""
    found, folder = location(database_url(settings)), os.path.realpath(settings.data_dir)
    is_inside = not found.startswith(_ELSEWHERE) and Path(found).is_relative_to(folder)
    return os.path.relpath(found, folder) if is_inside else found


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # nobody may look
        return True
    return True


def _is_one_file(one: Path, other: Path) -> bool:
    """By two names, as a mount gives it."""
    try:
        return one.samefile(other)
    except OSError:
        return False
