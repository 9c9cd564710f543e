"""What cached KV belongs to: an engine and a System segment, told without loading the model."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from app.folders import digests_file, records_of
from app.models import BUNDLED, resolve_model
from app.settings import Settings, expanded
from app.wording import Wording
from app.workspace import Workspace
from ragcache.errors import ConfigError, ModelError, StoreError

KIND, SYSTEM = "identity", "system"  # of records
GPUS = ("nvidia*", "kfd")  # what their drivers put into /dev
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """Of all KV that one model computes behind one System segment."""

    fingerprint: str
    system: str


def current_identity(workspace: Workspace) -> Identity:
    """Of the settings. The weights are read for their checksum alone, and once. Raises ConfigError and ModelError."""
    if loaded := Workspace.parts.peek(workspace):
        return Identity(loaded.engine.spec.fingerprint, workspace.template.system().hash)
    folder = resolve_model(workspace.settings.model, workspace.settings.cache_dir)
    return Identity(_fingerprint(workspace.settings, folder), _system(workspace, folder))


def recorded_identities(workspace: Workspace) -> set[Identity]:
    """Of the last ingest into each collection."""
    return {
        Identity(one.engine_fingerprint, one.system_hash)
        for one in workspace.catalog.collections.all()
        if one.engine_fingerprint is not None and one.system_hash is not None
    }


def known_identities(workspace: Workspace) -> set[Identity]:
    """Whose KV this catalog's chunks may have: of ingests and, where its model is at hand, of answers."""
    try:
        return recorded_identities(workspace) | {current_identity(workspace)}
    except (ConfigError, ModelError) as error:
        log.warning("KV of the model of the settings is not looked for: %s", error)
        return recorded_identities(workspace)


def remembered_identity(workspace: Workspace) -> Identity | None:
    """Of the settings, where it was found out before and takes no library to tell."""
    settings = workspace.settings
    try:
        if not settings.model.startswith(BUNDLED) and not expanded(Path(settings.model)).is_dir():
            return None
        folder = resolve_model(settings.model, settings.cache_dir, convert=False)
        known = _remembered(settings, folder)
    except (ConfigError, ModelError, StoreError):
        return None
    return None if known is None else Identity(known, _system(workspace, folder))


def _system(workspace: Workspace, folder: Path) -> str:
    """The hash of its ids, for which no tokenizer is read where they were told before."""
    if loaded := Workspace.template.peek(workspace):
        return loaded.system().hash
    records, told = records_of(workspace.settings), json.dumps([workspace.settings.system_prompt, asdict(Wording())])
    facts = {"text": hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()}
    found = (records.read(SYSTEM, folder, **facts) or {}).get("hash")
    if isinstance(found, str):
        return found
    basis = records.basis(folder)
    made = workspace.template.system().hash
    records.write(SYSTEM, folder, {"hash": made}, basis, **facts)
    return made


def _fingerprint(settings: Settings, folder: Path) -> str:
    """As the engine names itself once it is loaded."""
    known = _remembered(settings, folder)
    if known is not None:
        return known
    from app.devices import resolve_device, resolve_dtype
    from ragcache.engine.digests import Digests
    from ragcache.engine.fingerprint import folder_fingerprint

    basis = records_of(settings).basis(folder)
    dtype = resolve_dtype(settings, resolve_device(settings))
    found = folder_fingerprint(folder, dtype, Digests(digests_file(settings)))
    if (facts := _facts(settings)) is not None:
        records_of(settings).write(KIND, folder, {"fingerprint": found}, basis, **facts)
    return found


def _remembered(settings: Settings, folder: Path) -> str | None:
    facts = _facts(settings)
    values = None if facts is None else records_of(settings).read(KIND, folder, **facts)
    found = None if values is None else values.get("fingerprint")
    return found if isinstance(found, str) else None


def _facts(settings: Settings) -> dict[str, str] | None:
    """What the number format of `auto` hangs on beside the files. None where a GPU may have a say: torch tells."""
    if settings.device != "cpu" and any(any(Path("/dev").glob(name)) for name in GPUS):
        return None
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    features = sorted({line for line in processor.splitlines() if line.startswith(("flags", "Features"))})
    digest = hashlib.sha256("\n".join(features).encode()).hexdigest()
    return {"device": settings.device, "dtype": settings.dtype, "processor": digest}
