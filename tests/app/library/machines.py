"""Machines over one catalog."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.library import Library
from app.library.catalog.records import Collection
from app.library.kv_following import KvFollowing
from app.library.removal import remove_documents
from app.models import Models
from tests.app.library.shelves import files


@dataclass(frozen=True)
class Machine:
    library: Library
    models: Models

    def follow(self) -> int:
        """As a process that has just started."""
        return KvFollowing(self.library, self.models).follow()

    def captured(self, *texts: str, border: str = "") -> list[str]:
        """Addresses of their KV, each behind those before."""
        template = self.models.template.within(border)
        chunks = [template.chunk(text) for text in texts]
        return [one.key.digest for one in self.models.cache.ingest(template.system(), chunks)]

    @property
    def files(self) -> set[str]:
        return files(self.library)

    @property
    def file(self) -> Path:
        (found,) = self.library.settings.kv_folder.glob("departures-*")
        return found

    def remove(self, collection: Collection, source: str) -> None:
        document = self.library.catalog.documents.find(collection, source)
        assert document is not None
        remove_documents(self.library, self.models, collection, [document.id])
