"""Names of objects tell whose they are, and what had a part in them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from ragcache.store.remote.names import UNTOLD, Suspicion, object_name, parse_name
from ragcache.types import Lineage, ids_hash

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def lineage_seeing(variant: Any, texts: list[str]) -> Lineage:
    return replace(variant.lineage, seen=tuple(texts), complete=True)


@pytest.mark.parametrize("count", [0, 1, 3, 40, 256])
def test_a_name_finds_every_text_that_had_a_part_and_few_others(make_variant: Any, count: int) -> None:
    variant = make_variant()
    texts = [ids_hash((number,)) for number in range(count)]
    name = object_name(variant.key, lineage_seeing(variant, texts))
    place = parse_name(name, 10, NOW, "v")
    assert place is not None
    assert (place.family, place.digest) == (variant.key.family, variant.key.digest)
    assert len(name.rpartition("/")[2]) < 255, "file systems take no more"
    for text in (*texts, *variant.key.context, variant.key.chunk):
        assert Suspicion([text])(place)
    others = [ids_hash((-number,)) for number in range(1, 401)]
    found = sum(Suspicion([text])(place) for text in others)
    assert found <= (20 if count <= 40 else 200)


def test_what_does_not_tell_all_may_have_seen_anything(make_variant: Any) -> None:
    variant = make_variant()
    assert not variant.lineage.complete
    name = object_name(variant.key, variant.lineage)
    assert f".{UNTOLD}." in name
    place = parse_name(name, 10, NOW, None)
    assert place is not None
    assert Suspicion(["whatever"])(place)


FAMILY, DIGEST = "ab" * 32, "cd" * 32


@pytest.mark.parametrize(
    "name",
    [
        "",
        "readme.txt",
        f"ab/{FAMILY}/{DIGEST}.kv",
        f"cd/{FAMILY}/{DIGEST}.all.kv",  # another family's folder
        f"ab/{FAMILY}/{DIGEST}.all.kv.tmp",
        f"ab/{FAMILY}/../{DIGEST}.all.kv",
        f"ab/{FAMILY}/{DIGEST.upper()}.all.kv",
        f"ab/{FAMILY}/{DIGEST[:-1]}.all.kv",
        f"ab/{FAMILY}/{DIGEST}.{'x' * 129}.kv",
        f"ab/{FAMILY}/{DIGEST}.xxxxx.kv",  # no base64
        f"ab/{FAMILY}/{DIGEST}.all.kv\n",
    ],
)
def test_what_is_no_name_of_ours_is_left_alone(name: str) -> None:
    assert parse_name(name, 10, NOW, "v") is None
