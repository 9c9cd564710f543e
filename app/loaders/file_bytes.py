"""The bytes of a file, or the reason why there are none."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from app.errors import LoadError
from app.loaders.base import MEGABYTE, ParseLimits


def read_file(path: Path, limits: ParseLimits) -> bytes:
    """All of a regular file that is within the limit. Raises LoadError."""
    try:
        # Not to block: opening a named pipe would wait for someone to write to it.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            size = _size(path, os.fstat(fd), limits)
            data = file.read(size + 1)
    except OSError as error:
        raise LoadError(path, _reason(path, error)) from error
    if len(data) != size:
        raise LoadError(path, "changed while it was read: ingest it again when it is complete")
    if not data:
        raise LoadError(path, "is empty (0 bytes): there is nothing to ingest")
    return data


def _size(path: Path, told: os.stat_result, limits: ParseLimits) -> int:
    if stat.S_ISDIR(told.st_mode):
        raise LoadError(path, "is a folder, not a file: give the folder to ingest, which walks it")
    if not stat.S_ISREG(told.st_mode):
        raise LoadError(path, "is a pipe, socket or device, not a file: save what it gives to a file")
    if told.st_size > limits.max_bytes:
        raise LoadError(
            path,
            f"has {told.st_size / MEGABYTE:,.1f} MB, more than the limit of {limits.max_bytes / MEGABYTE:,.1f} MB: "
            "split it, or raise the limit",
        )
    return told.st_size


def _reason(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        if path.is_symlink():
            return "is a symbolic link to a file that does not exist: mend or remove the link"
        return "does not exist: it was removed, or its name is misspelt"
    if isinstance(error, PermissionError):
        return "may not be read by this user: change its permissions"
    if error.errno == errno.ELOOP:
        return "is a loop of symbolic links: remove the link"
    if isinstance(error, IsADirectoryError):
        return "is a folder, not a file: give the folder to ingest, which walks it"
    return f"cannot be read ({error.strerror or error}): check the disk and its mount"
