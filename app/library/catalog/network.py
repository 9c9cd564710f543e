"""SQLite's locks and its log cannot be relied on where a file is on another machine."""

from __future__ import annotations

import os
from pathlib import Path

from app.errors import CatalogError
from ragcache.mounts import MOUNTS, network_file_system


def refuse_network(file: Path, mounts: Path = MOUNTS) -> None:
    """Raises CatalogError where the folder of an SQLite file is on a network file system."""
    kind = network_file_system(Path(os.path.realpath(file)).parent, mounts)
    if kind:
        raise CatalogError(
            f"the catalog {file} would be on a network file system ({kind}), where SQLite loses data when two machines "
            "or a broken connection come together: choose a local folder with RAGCACHE_DATA_DIR, or PostgreSQL with "
            "RAGCACHE_DATABASE_URL. A catalog that is there already can be moved while no program uses it"
        )
