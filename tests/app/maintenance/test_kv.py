from __future__ import annotations

from app import compose
from app.maintenance.kv import has_kv, kv_folder
from app.settings import Settings


def test_the_folder_is_that_of_the_store(settings: Settings) -> None:
    assert kv_folder(settings) == compose.kv_folder(settings)
    assert not has_kv(settings)
    compose.load_store(settings)
    assert not has_kv(settings), "an empty store holds nothing"
