"""Run by test_restoring.py: a restore that is killed at each of its steps in turn. Prints what is in the catalog then.

    killed_restore.py DATA COPY WORK      the folder of a catalog, a copy to restore, a folder to work in

A script of its own, so that each restore is a fork of a process that runs no threads.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from app.library.catalog import open_catalog
from app.library.catalog.database import Database, database_url
from app.library.catalog.restoration import restore
from app.settings import Settings

STEPS = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.utime", "fcntl.lockf", "open", "sqlite3.connect"}


def killed(folder: Path, copy: Path, step: int) -> bool:
    """Whether the process died at this step; it has fewer otherwise."""
    pid = os.fork()
    if pid:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    seen = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        # Of what is opened, only what is ours: a module that is loaded is no step.
        if event in STEPS and (event == "fcntl.lockf" or str(arguments[0]).startswith((str(folder), "file:"))):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    try:
        restore(Database(database_url(Settings(data_dir=folder))), copy, 1)
    finally:
        os._exit(0)


def main() -> None:
    data, copy, work = (Path(name) for name in sys.argv[1:])
    found, step, going = [], 0, True
    while going:
        step += 1
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(data, work)
        going = killed(work, copy, step)
        with open_catalog(Settings(data_dir=work)) as catalog:
            catalog.check_integrity()
            found.append(sorted(catalog.documents.states(catalog.collections.get("default"))))
    print(json.dumps(found))


main()
