"""What was captured, on its way to the store."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path
from typing import Any

from ragcache.engine.vllm.captures import Storing
from ragcache.engine.vllm.orders import Answers, Incident, Stored
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.store.ram import RamTier
from ragcache.types import Variant
from tests.ragcache.store.conftest import build_variant


def told(store: KVStore, variant: Variant) -> Answers:
    storing, answers = Storing(), Answers()
    storing.begin("a", store, variant)
    wait(storing.awaited)
    storing.tell(answers)
    storing.close()
    assert answers.stored == [Stored("a")]
    return answers


def test_what_is_captured_is_kept_where_all_else_is_worth_more(tmp_path: Path) -> None:
    """As what somebody asks to be kept: whoever captures it looks for it in the folder."""
    old, new = build_variant(), build_variant((8, 8, 8))
    probe = open_store(tmp_path / "probe", ram_bytes=0, codec="raw")
    probe.put(old)
    store = open_store(tmp_path / "kv", ram_bytes=0, disk_bytes=probe.stats()[-1].nbytes, codec="raw", order="value")
    store.put(old)
    for _ in range(20):
        assert store.get(old.key) is not None
    assert not store.put(new), "an answer's is declined"
    assert told(store, new).incidents == []
    assert store.get(new.key) is not None


class Declining(RamTier):
    def put(self, variant: Variant, *, wanted: bool = False) -> bool:
        return False


def test_what_is_declined_is_told_by_its_reason() -> None:
    store: Any = Declining(None)
    assert told(store, build_variant()).incidents == [Incident("a", "KV not stored: the store has declined it")]
