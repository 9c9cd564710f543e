"""Where the KV of single chunks lies, in this process and on its disk."""

from __future__ import annotations

from app.library.identities import current_identity
from app.library.kv import Shelf, families_of, has_kv
from app.models import Models
from ragcache.store.base import KVStore
from ragcache.store.findings import DISK, RAM
from ragcache.store.folder import CacheFolder, engine_name


class KeptChunks:
    """As it is when this is made, of the model of the settings. `loaded`: whether this process has a store open."""

    def __init__(self, models: Models, loaded: bool):
        self._store: KVStore | None = models.store if loaded else None
        on_disk = has_kv(models.settings)
        self._identity = current_identity(models) if loaded or on_disk else None
        engines = [engine_name(self._identity.fingerprint)] if self._identity and on_disk else []
        self._shelf = Shelf(CacheFolder(models.settings.kv_folder).items(engines) if engines else ())

    def of(self, token_hash: str, border: str) -> tuple[list[str], int]:
        """The tiers that have any which serves within that border, the fastest first, and its bytes on the disk, or in
        memory where it is there alone.
        """
        if self._identity is None:
            return [], 0
        (family,) = families_of(self._identity, [token_hash], border)
        memory = self._store.memory if self._store else None
        held = [info.nbytes for info in (memory.variants(family) if memory else ())]
        kept = self._shelf.of([family])
        tiers = [*([RAM] if held else []), *([DISK] if kept.entries else [])]
        return tiers, kept.nbytes or sum(held)
