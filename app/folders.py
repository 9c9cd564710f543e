"""Where parts of the application keep their files. It imports nothing heavy, so a command can look before it loads."""

from __future__ import annotations

from pathlib import Path

from app.settings import Settings
from ragcache.records import FOLDER, Records

INDEXES = "index"


def kv_folder(settings: Settings) -> Path:
    return settings.cache_dir / "kv"


def digests_file(settings: Settings) -> Path:
    """Checksums of model files that were read before."""
    return settings.cache_dir / "digests.json"


def records_of(settings: Settings) -> Records:
    """What earlier starts have found out about models."""
    return Records(settings.cache_dir / FOLDER)


def index_folder(settings: Settings, uid: str) -> Path:
    """Of a collection by its uid."""
    return settings.data_dir / INDEXES / uid
