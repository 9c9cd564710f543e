from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ragcache.address import Placed, address_of, history_of
from ragcache.errors import PromptError
from ragcache.types import Chunk, Segment, System, Text, VariantKey, ids_hash

SYSTEM, OTHER = System((1, 2, 3)), System((9, 9))
A, B, C = Chunk((4, 5)), Chunk((6, 7, 8)), Chunk((10,))
STRANGE = ids_hash((99,))


def stored(*segments: Segment, system: Segment = SYSTEM) -> list[Placed]:
    """A System segment and chunks, each captured behind all before it."""
    found: list[Placed] = [(VariantKey("engine", "", (), system.hash), system.ids)]
    for place, segment in enumerate(segments):
        context = tuple(other.hash for other in segments[:place])
        found.append((VariantKey("engine", system.hash, context, segment.hash), segment.ids))
    return found


def test_an_address_names_what_stands_before() -> None:
    assert address_of("engine", [], SYSTEM) == VariantKey("engine", "", (), SYSTEM.hash)
    assert address_of("engine", stored(), A) == VariantKey("engine", SYSTEM.hash, (), A.hash)
    assert address_of("engine", stored(A, B), C) == VariantKey("engine", SYSTEM.hash, (A.hash, B.hash), C.hash)
    system, _, b = stored(A, B)
    behind = address_of("engine", [system, b], C)
    assert behind.context == (B.hash,)
    assert behind.history == history_of([b[0]]) != ""


def changed(place: int, **changes: Any) -> list[Placed]:
    before = stored(A, B)
    key, ids = before[place]
    before[place] = (replace(key, **changes), ids)
    return before


@pytest.mark.parametrize(
    ("before", "segment", "reason"),
    [
        ([], A, "Chunk has nothing before it"),
        ([], Text((1,)), "Text has nothing before it"),
        (stored(A), Text((1,)), "Text stands behind others"),
        (stored(A), OTHER, "System stands behind others"),
        (stored(A)[1:], B, "not the System segment"),
        ([*stored(A)[1:], *stored()], B, "not the System segment"),
        (changed(0, fingerprint="another"), C, "not the System segment"),
        (changed(0, system=STRANGE), C, "not the System segment"),
        (changed(0, context=(STRANGE,)), C, "not the System segment"),
        (changed(0, history=STRANGE), C, "not the System segment"),
        (changed(0, chunk=STRANGE), C, "not the System segment"),
        (changed(1, fingerprint="another"), C, "place 1"),
        (changed(1, system=OTHER.hash), C, "place 1"),
        (changed(2, system=""), C, "place 2"),
        (changed(2, chunk=STRANGE), C, "place 2"),
        ([*stored(A), *stored(B, system=OTHER)], C, "place 2"),
        ([*stored(A), *stored(B, system=OTHER)[1:]], C, "place 2"),
    ],
)
def test_a_false_address_cannot_be_made(before: list[Placed], segment: Segment, reason: str) -> None:
    with pytest.raises(PromptError, match=reason):
        address_of("engine", before, segment)
