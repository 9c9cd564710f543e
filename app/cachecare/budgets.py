"""Budgets of the KV that change while it is served: what other ones would do, and the change."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from app.errors import Conflict, MaintenanceError
from app.models import Models
from app.settings import variable
from ragcache.host import free_bytes
from ragcache.store import KVStore
from ragcache.store.budgets import BudgetOutlook
from ragcache.store.findings import DISK

OF_VLLM = (
    "the KV is kept by a vLLM server, with the budgets that it was started with: `ram_bytes` and `disk_bytes` of its "
    "kv_connector_extra_config (docs/vllm.md)"
)


class Budgets:
    """Of this process's tiers, by their names, until it ends. Threads share it: one changes them at a time.

    Raises Conflict where the tiers are not its own, ConfigError for a tier that is not there and for 0 bytes, and
    MaintenanceError for more than the disk has.
    """

    def __init__(self, models: Models):
        self._models, self._lock = models, threading.Lock()

    def outlooks(self, asked: Mapping[str, int]) -> list[BudgetOutlook]:
        """Of every tier; one that is asked nothing for keeps what it has."""
        store = self._checked(asked)
        return [store.outlook(one.name, asked.get(one.name, one.budget)) for one in store.tiers()]

    def change(self, asked: Mapping[str, int]) -> list[BudgetOutlook]:
        """All of them or none -> how it is now, with what has left."""
        with self._lock:
            store = self._checked(asked)
            gone = {name: store.resize(name, budget) for name, budget in asked.items()}
            return [replace(one, leaving=gone.get(one.tier, one.leaving)) for one in self.outlooks({})]

    def _checked(self, asked: Mapping[str, int]) -> KVStore:
        settings = self._models.settings
        if self._models.links_elsewhere:
            raise Conflict(OF_VLLM)
        if settings.kv == "off":
            raise Conflict(f"no KV is kept ({variable('kv')}=off), so there is no budget")
        store = self._models.store
        for name, budget in asked.items():
            store.resizable(name, budget)
        if (disk := asked.get(DISK)) is not None:
            self._check_disk(disk, store.resizable(DISK, disk).held())
        return store

    def _check_disk(self, budget: int, held: int) -> None:
        free = free_bytes(self._models.settings.kv_folder)
        if budget > free + held:
            raise MaintenanceError(
                f"a budget of {budget:,} bytes for disk, which has {free:,} free beside {held:,} of KV: give at most "
                f"{free + held:,}"
            )
