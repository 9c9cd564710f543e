"""Deletions ask a bucket for no more names than they must."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from ragcache.store.remote import bucket as module
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.names import ObjectPlace
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, settled


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folder of each page of names that was asked for."""
    asked, places = list[str](), Bucket.places

    async def counted(self: Bucket, prefix: str = "") -> AsyncGenerator[list[ObjectPlace]]:
        asked.append(prefix)
        async for page in places(self, prefix):
            yield page
            asked.append(prefix)

    monkeypatch.setattr(Bucket, "places", counted)
    return asked


@pytest.mark.parametrize("page", [1000, 1])
def test_families_that_lie_in_one_folder_are_listed_together(
    machine: OpenMachine,
    folder_url: str,
    make_variant: Any,
    listed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    page: int,
) -> None:
    """But one by one where so much lies there that it would take longer."""
    monkeypatch.setattr(module, "PAGE", page)
    variants = [make_variant((one, one)) for one in range(40)]
    store = machine("one", folder_url)
    for variant in variants:
        store.put(variant)
    settled(store)
    gone, stays = variants[:20], variants[20:]
    nowhere = [hashlib.sha256(b"%d" % one).hexdigest() for one in range(2000)]
    listed.clear()
    store.drop_families({variant.key.family: set() for variant in gone} | {family: set() for family in nowhere})
    settled(store)
    assert len(listed) < 700, "256 folders, and names"
    assert digests_in(store) == {variant.key.digest for variant in stays}


def test_where_names_are_many_each_family_is_listed(
    machine: OpenMachine, folder_url: str, make_variant: Any, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 1)
    same = [make_variant(context=(f"c{one}",)) for one in range(7)]  # of one family
    family = same[0].key.family
    store = machine("one", folder_url)
    for variant in same:
        store.put(variant)
    settled(store)
    listed.clear()
    beside = [family[:2] + one * 62 for one in "abc"]
    store.drop_families({family: {same[0].key.digest}} | {one: set() for one in beside})
    settled(store)
    assert {*listed} == {f"{family[:2]}/", *(f"{family[:2]}/{one}/" for one in (family, *beside))}
    assert digests_in(store) == {same[0].key.digest}
