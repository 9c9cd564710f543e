"""The vLLM server of the settings, where its address or its key is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.vllm import check_served, open_served
from app.settings import Settings
from ragcache.errors import ConfigError
from ragcache.store import open_store

HERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("url", "key", "reason"),
    [
        ("", "", "RAGCACHE_VLLM_URL should be a URL"),
        (f"{HERE}/?api_key=sk-secret", "", "RAGCACHE_VLLM_URL should be a URL"),
        ("http://me:sk-secret@localhost", "", "the key goes into RAGCACHE_VLLM_KEY"),
        (HERE, "sk-secret\r", "RAGCACHE_VLLM_KEY is no key"),
        (HERE, "sk-secret\n", "RAGCACHE_VLLM_KEY is no key"),
        ("http://example.org", "sk-secret", "use https"),
    ],
)
def test_what_cannot_be_used_is_refused_and_not_repeated(url: str, key: str, reason: str, tmp_path: Path) -> None:
    settings = Settings(engine="vllm-server", vllm_url=url, vllm_key=key)
    store = open_store(ram_bytes=1, codec="raw")
    for call in (lambda: check_served(settings), lambda: open_served(settings, tmp_path, store)):
        with pytest.raises(ConfigError, match=reason) as told:
            call()
        assert "sk-secret" not in str(told.value)
