"""What a bucket is known to hold, and for how long."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any

import pytest

from ragcache.store.remote import catalog
from ragcache.store.remote.catalog import LACKED_S
from tests.ragcache.store.remote.conftest import OpenMachine, settled


def test_a_look_that_ends_at_once_is_believed_no_longer_than_others(
    machine: OpenMachine, folder_url: str, make_variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another machine uploads later is seen."""
    variant, now = make_variant(), [0.0]
    one, other = machine("one", folder_url), machine("other", folder_url)
    submit = one._bucket.submit

    def at_once(work: Coroutine[Any, Any, Any]) -> Future[Any]:
        future = submit(work)
        wait([future])
        return future

    monkeypatch.setattr(catalog, "monotonic", lambda: now[0])
    with monkeypatch.context() as patched:
        patched.setattr(one._bucket, "submit", at_once)
        assert one.variants(variant.key.family) == []
    other.put(variant)
    settled(other)
    assert one.variants(variant.key.family) == [], "for a while"
    now[0] = LACKED_S + 1
    assert [info.key for info in one.variants(variant.key.family)] == [variant.key]
    assert not one._catalog._looks
