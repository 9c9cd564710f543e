from __future__ import annotations

from app.folders import kv_folder
from app.library.kv import has_kv
from app.models.loading import load_store
from app.settings import Settings


def test_the_folder_is_that_of_the_store(settings: Settings) -> None:
    assert not has_kv(settings)
    load_store(settings)
    assert kv_folder(settings).is_dir()
    assert not has_kv(settings), "an empty store holds nothing"
