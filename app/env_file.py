"""The variables of a `.env`, which is read for its owner's sake only: the current folder may be anybody's."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TextIO

from dotenv import dotenv_values

from ragcache.errors import ConfigError


def read_env_file(path: Path | None, prefix: str) -> dict[str, str | None]:
    """Its variables by name in capitals. Raises ConfigError, also where others may have written those of the prefix."""
    if path is None or path.is_dir():  # a virtual environment may have the name
        return {}
    try:
        # Once, so that what is checked is what is read. Not to block: a named pipe would wait for someone to write.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), encoding="utf-8") as file:
            found, foreign = _read(file, path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if foreign and any(name.startswith(prefix) for name in found):
        raise ConfigError(
            f"{path.absolute()} {foreign}, so that its {prefix}… settings may be somebody else's, who could send your "
            "documents elsewhere: remove them, make the file yours alone, or run this in another folder"
        )
    return found


def _read(file: TextIO, path: Path) -> tuple[dict[str, str | None], str]:
    """Variables, and why others may have written them."""
    told = os.fstat(file.fileno())
    if not stat.S_ISREG(told.st_mode):
        raise OSError("it is a pipe or device, not a file")
    foreign = _foreign(told, path.absolute().parent.stat())
    return {name.upper(): value for name, value in dotenv_values(stream=file).items()}, foreign


def _foreign(file: os.stat_result, folder: os.stat_result) -> str:
    """Why others may have written the file, or "". The superuser may write anything anyway."""
    mine = (os.geteuid(), 0)
    if file.st_uid not in mine:
        return f"belongs to another user (id {file.st_uid})"
    if file.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    if folder.st_uid not in mine:
        return f"lies in a folder of another user (id {folder.st_uid})"
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        return "lies in a folder that every user can write to"
    return ""
