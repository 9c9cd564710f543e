"""What cached KV belongs to: an engine and a System segment, told without loading the model."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from app.folders import digests_file
from app.models import resolve_model
from app.settings import Settings
from app.workspace import Workspace
from ragcache.errors import ConfigError, ModelError

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
    return Identity(_fingerprint(workspace.settings), workspace.template.system().hash)


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


def _fingerprint(settings: Settings) -> str:
    """As the engine names itself once it is loaded."""
    from app.devices import resolve_device, resolve_dtype
    from ragcache.engine.digests import Digests
    from ragcache.engine.fingerprint import folder_fingerprint

    folder = resolve_model(settings.model, settings.cache_dir)
    dtype = resolve_dtype(settings, resolve_device(settings))
    return folder_fingerprint(folder, dtype, Digests(digests_file(settings)))
