from __future__ import annotations

from app.library.kv import has_kv
from app.models.loading import load_store
from app.settings import Settings


def test_the_folder_is_that_of_the_store(settings: Settings) -> None:
    assert not has_kv(settings)
    load_store(settings)
    assert settings.kv_folder.is_dir()
    assert not has_kv(settings), "an empty store holds nothing"
