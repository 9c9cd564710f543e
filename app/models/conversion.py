"""From the GGUF file of a bundled model to a folder of bfloat16 safetensors, once per cache folder."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from ragcache.errors import StoreError
from ragcache.host import private_folder, sync
from ragcache.records import FOLDER, Records

KIND = "gguf"  # of records
MANIFEST = "manifest.json"
FORMAT = 1  # raise it when the conversion writes something else, and folders of before are converted again
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileRecord:
    size: int
    sha256: str


def converted_folder(gguf: Path, name: str, cache_dir: Path) -> Path:
    """Where the conversion of this very file lies: another GGUF gets another folder."""
    records = Records(cache_dir / FOLDER)
    basis = records.basis(gguf.parent)
    digest = (records.read(KIND, gguf.parent, file=gguf.name) or {}).get("sha256")
    if not isinstance(digest, str):
        digest = _sha256(gguf)
        records.write(KIND, gguf.parent, {"sha256": digest}, basis, file=gguf.name)
    return cache_dir / "models" / f"{name}-{digest[:12]}"


def convert_once(gguf: Path, folder: Path) -> Path:
    """Convert unless a sound conversion is there. Any number of processes may call this at once.

    Raises ModelError for a GGUF that cannot be read and StoreError for a folder that cannot be written.
    """
    try:
        if find_flaw(folder) is None:
            return folder
        private_folder(folder.parent)
        # The system frees the lock when its holder dies, so there is no stale one to clear.
        with FileLock(f"{folder}.lock"):
            flaw = find_flaw(folder)  # again: another process may have converted while this one waited
            if flaw is None:
                return folder
            _announce(gguf, folder, flaw)
            _convert_into(gguf, folder)
    except OSError as error:
        raise StoreError(
            f"cannot keep the converted model in {folder}: {error}; free some space or set RAGCACHE_CACHE_DIR"
        ) from error
    return folder


def find_flaw(folder: Path, full: bool = False) -> str | None:
    """What is wrong with a conversion, or None. Compares sizes with the manifest, with `full` every byte."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            return f"{MANIFEST} has format {manifest['format']}, this version writes {FORMAT}"
        records = {name: FileRecord(**record) for name, record in manifest["files"].items()}
    except FileNotFoundError:
        return "not converted yet" if not folder.exists() else f"{MANIFEST} is missing"
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return f"{MANIFEST} cannot be read: {error!r}"
    for name, record in records.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != record.size:
            return f"{name} has {path.stat().st_size} bytes, the manifest says {record.size}"
        if full and _sha256(path) != record.sha256:
            return f"{name} does not have the checksum of the manifest"
    return None


def _announce(gguf: Path, folder: Path, flaw: str) -> None:
    if folder.exists():
        logger.warning("the conversion in %s is not what was written (%s): converting again", folder, flaw)
    else:
        logger.info("converting %s to %s, once; this takes less than a minute", gguf.name, folder)


def _convert_into(gguf: Path, folder: Path) -> None:
    from app.models.gguf import convert

    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that died; the lock is ours
    partial.mkdir()
    try:
        convert(gguf, partial)
        _seal(gguf, partial)
        _replace(folder, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _seal(gguf: Path, partial: Path) -> None:
    """Add the manifest; everything is on disk when this returns."""
    files = sorted(path for path in partial.iterdir() if path.is_file())
    records = {path.name: asdict(FileRecord(path.stat().st_size, _sha256(path))) for path in files}
    manifest = {"format": FORMAT, "source": gguf.name, "source_sha256": _sha256(gguf), "files": records}
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    for path in [*files, partial / MANIFEST, partial]:
        sync(path)


def _replace(folder: Path, partial: Path) -> None:
    """Put the new folder in place of the old: a reader sees one or the other whole, or for an instant none."""
    stale = folder.with_name(f".{folder.name}.stale")
    shutil.rmtree(stale, ignore_errors=True)
    if folder.exists():
        folder.rename(stale)  # processes that read the old files keep them open
    partial.rename(folder)
    sync(folder.parent)
    shutil.rmtree(stale, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
