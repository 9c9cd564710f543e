"""Every byte of the KV cache, read and compared with its checksum."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.maintenance.kv import has_kv
from app.maintenance.pruning import forget
from app.workspace import Workspace
from ragcache.store.base import Flaw


@dataclass(frozen=True)
class Verified:
    entries: int  # that were there
    nbytes: int
    flaws: tuple[Flaw, ...]  # quarantined now


def verify(workspace: Workspace) -> Verified:
    """Bad files are put aside and forgotten; an answer computes them again."""
    if not has_kv(workspace.settings):
        return Verified(0, 0, ())
    store = workspace.store
    disk = [stats for stats in store.stats() if stats.tier == "disk"]
    flaws = tuple(store.verify())
    forget(workspace, [Path(flaw.where).stem for flaw in flaws])
    return Verified(sum(one.entries for one in disk), sum(one.nbytes for one in disk), flaws)
