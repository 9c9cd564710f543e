"""Where parts of the application keep their files. It imports nothing heavy, so a command can look before it loads."""

from __future__ import annotations

import re
from pathlib import Path

from app.errors import CatalogError
from app.settings import Settings
from ragcache.records import FOLDER, Records

INDEXES = "index"
UID = re.compile("[0-9a-f]{32}")


def kv_folder(settings: Settings) -> Path:
    return settings.cache_dir / "kv"


def digests_file(settings: Settings) -> Path:
    """Checksums of model files that were read before."""
    return settings.cache_dir / "digests.json"


def records_of(settings: Settings) -> Records:
    """What earlier starts have found out about models."""
    return Records(settings.cache_dir / FOLDER)


def index_folder(settings: Settings, uid: str) -> Path:
    """Of a collection by its uid. It is made and deleted, so a catalog that others write to must not name any other."""
    if not UID.fullmatch(uid):
        raise CatalogError(f"a collection has the uid {uid!r}, which ragcache never gives: take a copy of the catalog")
    return settings.data_dir / INDEXES / uid
