"""KV that no disk has: where `RAGCACHE_DISK_BYTES` is 0."""

from __future__ import annotations

from app.library import Library
from app.library.catalog import open_catalog
from app.library.removal import remove_documents
from app.models import Models
from app.models.loading import TorchModel
from app.settings import Settings
from tests.app.library.shelves import BOOKS, fill


def test_it_goes_with_its_text(settings: Settings, parts: TorchModel) -> None:
    settings = settings.model_copy(update={"disk_bytes": 0})
    with Models(settings, parts) as models, open_catalog(settings) as catalog:
        library = Library(settings, catalog, models)
        collection = fill(library, models)
        kvgen, system = models.cache.kvgen, models.template.system()
        behind = kvgen.system(system)
        variants = [kvgen.capture(behind, [], models.template.chunk(text)) for text in BOOKS["/books/rye.txt"]]
        for variant in variants:
            models.store.put(variant)
        rye = catalog.documents.find(collection, "/books/rye.txt")
        assert rye is not None and not settings.kv_folder.exists()
        assert remove_documents(library, models, collection, [rye.id]).kv_variants == len(variants)
        assert not any(models.store.variants(one.key.family) for one in variants)
