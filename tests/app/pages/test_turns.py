"""Whoever is turned away costs the server nothing: not even a look into the catalog."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from app.errors import NotFound, PagesBusy
from app.pages import AT_ONCE, WAITING, Pages
from tests.app.loaders.files import write_pdf


def test_a_layout_is_read_by_whoever_has_a_turn(tiny_folder: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", kv="off")
    path = write_pdf(tmp_path / "a.pdf", [["First line", "Second"]])
    with RagPipeline(settings) as pipeline:
        pipeline.ingest(path)
        catalog, pages = pipeline.library.catalog, Pages(pipeline.library)
        document = catalog.documents.find(catalog.collections.get("default"), str(path))
        assert document is not None
        gone = replace(document, id=document.id + 1)
        with pytest.raises(NotFound):
            pages.boxes(gone, 1)
        for _ in range(AT_ONCE + WAITING):
            assert pages._entered.acquire(blocking=False)
        with pytest.raises(PagesBusy):
            pages.boxes(gone, 1)
        for _ in range(AT_ONCE + WAITING):
            pages._entered.release()
        assert len(pages.boxes(document, 1).boxes) == 2
