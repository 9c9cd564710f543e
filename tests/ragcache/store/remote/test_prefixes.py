"""Exact prefixes of conversations stay on their machine: no bucket is asked for them."""

from __future__ import annotations

from typing import Any

import pytest

from ragcache.planning import plan_prompt
from ragcache.prefix import BLOCK, with_prefix
from ragcache.store.remote.catalog import BucketCatalog
from tests.prefixes import SYSTEM, blocks_of, cache_over, text
from tests.ragcache.store.remote.conftest import OpenMachine
from tests.tiny import make_tiny


def test_a_bucket_is_not_asked_for_blocks(
    machine: OpenMachine, folder_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has none: each prompt would wait for that, also at the end of what is kept here."""
    asked, look = list[str](), BucketCatalog.look

    def counted(self: BucketCatalog, family: str, *given: Any, **named: Any) -> Any:
        asked.append(family)
        return look(self, family, *given, **named)

    monkeypatch.setattr(BucketCatalog, "look", counted)
    cache = cache_over(make_tiny(max_position_embeddings=2048).engine, machine("one", folder_url))
    prompt = [SYSTEM, text(3 * BLOCK, 1)]
    for _ in range(2):  # the second time it recurs, and is kept
        list(cache.generate(prompt, max_tokens=2))
    longer, fingerprint = [SYSTEM, text(3 * BLOCK, 1), text(2 * BLOCK, 2)], cache.engine.spec.fingerprint
    blocks = blocks_of(cache, longer)
    plan = with_prefix(plan_prompt(longer, fingerprint, cache.store), longer, fingerprint, cache.store)
    assert 0 < len(plan.prefix) < len(blocks)
    assert cache.store.open(blocks[-1].key) is None
    assert asked
    assert not {block.key.family for block in blocks} & {*asked}
