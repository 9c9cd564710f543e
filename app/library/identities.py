"""Whose the KV is: an engine's and a System segment's, which are told without loading the model."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from app.library import Library
from app.models import Models
from app.models.folders import BUNDLED, resolve_model
from app.settings import Settings, expanded
from app.wording import Wording
from ragcache.errors import ConfigError, ModelError, StoreError

KIND, SYSTEM = "identity", "system"  # of records
GPUS = ("nvidia*", "kfd")  # what their drivers put into /dev
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """Of all KV that one model computes behind one System segment."""

    fingerprint: str
    system: str


def current_identity(models: Models) -> Identity:
    """Of the settings. The weights are read for their checksum alone, and once. Raises ConfigError and ModelError."""
    if loaded := models.loaded:
        return Identity(loaded.engine.spec.fingerprint, models.template.system().hash)
    folder = resolve_model(models.settings.model, models.settings.cache_dir)
    return Identity(_fingerprint(models.settings, folder), _system(models, folder))


def recorded_identities(library: Library) -> set[Identity]:
    """Of the last ingest into each collection."""
    return {
        Identity(one.engine_fingerprint, one.system_hash)
        for one in library.catalog.collections.all()
        if one.engine_fingerprint is not None and one.system_hash is not None
    }


def known_identities(library: Library, models: Models) -> set[Identity]:
    """Whose KV this catalog's chunks may have: of ingests and, where its model is at hand, of answers."""
    try:
        return recorded_identities(library) | {current_identity(models)}
    except (ConfigError, ModelError) as error:
        log.warning("KV of the model of the settings is not looked for: %s", error)
        return recorded_identities(library)


def remembered_identity(models: Models) -> Identity | None:
    """Of the settings, where it was found out before and takes no library to tell."""
    settings = models.settings
    try:
        if not settings.model.startswith(BUNDLED) and not expanded(Path(settings.model)).is_dir():
            return None
        folder = resolve_model(settings.model, settings.cache_dir, convert=False)
        known = _remembered(settings, folder)
    except (ConfigError, ModelError, StoreError):
        return None
    return None if known is None else Identity(known, _system(models, folder))


def remember_identity(models: Models) -> None:
    """Of a model that is loaded, for those who tell of KV without it: with its own settings, and of its files as they
    were when it was.
    """
    loaded = models.loaded
    if loaded is None or loaded.files is None or (facts := _facts(loaded.settings)) is None:
        return
    records, folder, basis = loaded.settings.records, loaded.files.folder, loaded.files.basis
    found, told = {"fingerprint": loaded.engine.spec.fingerprint}, _system_facts(loaded.settings)
    if records.read(KIND, folder, **facts) != found:
        records.write(KIND, folder, found, basis, **facts)
    system = {"hash": loaded.template.system().hash}
    if records.read(SYSTEM, folder, **told) != system:
        records.write(SYSTEM, folder, system, basis, **told)


def _system(models: Models, folder: Path) -> str:
    """The hash of its ids, for which no tokenizer is read where they were told before."""
    if loaded := Models.template.peek(models):
        return loaded.system().hash
    records, facts = models.settings.records, _system_facts(models.settings)
    found = (records.read(SYSTEM, folder, **facts) or {}).get("hash")
    if isinstance(found, str):
        return found
    basis = records.basis(folder)
    made = models.template.system().hash
    records.write(SYSTEM, folder, {"hash": made}, basis, **facts)
    return made


def _system_facts(settings: Settings) -> dict[str, str]:
    told = json.dumps([settings.system_prompt, asdict(Wording())])
    return {"text": hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()}


def _fingerprint(settings: Settings, folder: Path) -> str:
    """As the engine names itself once it is loaded."""
    known = _remembered(settings, folder)
    if known is not None:
        return known
    from app.models.loading import fingerprint_of  # it imports torch

    basis = settings.records.basis(folder)
    found = fingerprint_of(settings, folder)
    if (facts := _facts(settings)) is not None:
        settings.records.write(KIND, folder, {"fingerprint": found}, basis, **facts)
    return found


def _remembered(settings: Settings, folder: Path) -> str | None:
    facts = _facts(settings)
    values = None if facts is None else settings.records.read(KIND, folder, **facts)
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
