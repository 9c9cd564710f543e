"""What KV was computed from, told at length: it follows from the address, or the address names it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from ragcache.address import (
    MOST_CONTEXT,
    MOST_SEEN,
    MOST_TOLD,
    address_of,
    history_of,
    lineage_flaw,
    lineage_of,
    tellable,
    untold_lineage,
)
from ragcache.cache import ChunkCache
from ragcache.errors import PromptError
from ragcache.store import open_store
from ragcache.types import Lineage, Pass, Span, Variant, VariantKey, digest_of
from tests.tiny import Tiny, make_chunks, make_system

SYSTEM = make_system()
(CHUNK,) = make_chunks(9)


def document(tiny: Tiny, folder: Any, *lengths: int) -> list[Variant]:
    cache = ChunkCache(tiny.engine, open_store(folder, ram_bytes=0, codec="raw"), context_chunks=2)
    variants = list(cache.ingest(SYSTEM, make_chunks(*lengths)))
    found = [cache.store.get(variant.key) for variant in variants]
    return [one.variant for one in found if one is not None]


def test_it_tells_all_that_had_a_part(tiny: Tiny, tmp_path: Any) -> None:
    variants = document(tiny, tmp_path, 9, 8, 7, 6, 5)
    hashes = [variant.key.chunk for variant in variants]
    for place, variant in enumerate(variants):
        behind = variants[max(0, place - 2) : place]
        assert variant.lineage.seen == tuple(hashes[:place])
        assert variant.lineage.complete
        assert variant.lineage.passes == (Pass(Span(0, len(variant)), tuple(one.key.digest for one in behind)),)
        assert bool(variant.key.history) is (place > 2)
        assert lineage_flaw(variant.key, len(variant), variant.lineage) is None


def test_what_another_saw_is_none_of_this_address(tiny: Tiny, tmp_path: Any) -> None:
    variants = document(tiny, tmp_path, 9, 8, 7, 6, 5)
    told = {repr(variant.lineage.passes): variant for variant in variants}
    for variant in variants:
        for other in told.values():
            flaw = lineage_flaw(variant.key, len(variant), replace(other.lineage, passes=_resized(other, len(variant))))
            assert (flaw is None) is (other is variant)


def _resized(variant: Variant, tokens: int) -> tuple[Pass, ...]:
    return tuple(replace(one, rows=Span(0, tokens)) for one in variant.lineage.passes)


@pytest.mark.parametrize("cuts", [(0, 9), (0, 4, 9), (0, 1, 2, 9)])
def test_rows_that_were_computed_elsewhere_have_a_history(cuts: tuple[int, ...]) -> None:
    """Without one the address is that of a prefill, which nothing else may stand under."""
    passes = tuple(Pass(Span(start, end), (f"d{start}",)) for start, end in pairwise(cuts))
    lineage = Lineage(passes, ("c",), complete=False)
    plain = VariantKey("engine", "s", ("c",), "chunk")
    assert "seen more than its address" in str(lineage_flaw(plain, 9, lineage))
    assert "not what its history names" in str(lineage_flaw(replace(plain, history="0" * 64), 9, lineage))
    told = [digest_of(*one.behind) for one in passes]
    lines = [f"{one.rows.start} {one.rows.end} {' '.join(one.behind)}" for one in passes]
    named = replace(plain, history=told[0] if len(told) == 1 else digest_of(*lines))
    assert lineage_flaw(named, 9, lineage) is None
    assert lineage_flaw(named, 8, lineage) is not None


@pytest.mark.parametrize("spans", [[], [(0, 8)], [(1, 9)], [(0, 4), (5, 9)], [(0, 5), (4, 9)], [(0, 0), (0, 9)]])
def test_passes_are_of_all_rows(spans: list[tuple[int, int]]) -> None:
    lineage = Lineage(tuple(Pass(Span(*span), ()) for span in spans))
    assert lineage_flaw(VariantKey("engine", "s", (), "chunk"), 9, lineage) is not None


def test_a_long_history_is_told_as_far_as_it_goes() -> None:
    key, lineage = VariantKey("engine", "s", (), "c0"), untold_lineage(VariantKey("engine", "s", (), "c0"), 5)
    system = VariantKey("engine", "", (), "s"), Lineage((Pass(Span(0, 3), ()),))
    for place in range(1, MOST_SEEN + 5):
        found = lineage_of(5, [system, (key, lineage)])
        assert found.complete is (place <= MOST_SEEN)
        assert found.seen == tuple(f"c{one}" for one in range(place))[-MOST_SEEN:]
        key = VariantKey("engine", "s", (key.chunk,), f"c{place}", history_of([key]))
        lineage = found
        assert lineage_flaw(key, 5, lineage) is None


def test_what_is_captured_by_use_stands_behind_no_more_than_can_be_told(tiny: Tiny, tmp_path: Any) -> None:
    variants = [
        replace(variant, lineage=replace(variant.lineage, seen=tuple(f"{place}-{n}" for n in range(120))))
        for place, variant in enumerate(document(tiny, tmp_path, 9, 8, 7))
    ]
    assert tellable(variants) == variants[1:], "363 are too many"
    assert tellable([replace(variants[0], lineage=replace(variants[0].lineage, complete=False)), variants[1]]) == [
        variants[1]
    ]
    assert tellable([]) == []


def test_what_was_lost_before_is_lost_behind() -> None:
    key, lineage = VariantKey("engine", "s", (), "c0"), untold_lineage(VariantKey("engine", "s", (), "c0"), 5)
    system = VariantKey("engine", "", (), "s"), Lineage((Pass(Span(0, 3), ()),)).rounded("bf16")
    assert lineage_of(5, [system, (key, lineage.rounded("int8", "bf16"))]).lost == ("bf16", "int8")
    assert lineage_of(5, []).lossless


def test_what_it_tells_is_bounded() -> None:
    plain = VariantKey("engine", "s", ("a",) * (MOST_TOLD + 1), "chunk")
    assert "more chunks than are told" in str(lineage_flaw(plain, 5, Lineage((), complete=False)))
    told = Lineage((), tuple(str(one) for one in range(MOST_SEEN + 1)), complete=False)
    assert "more chunks than are told" in str(lineage_flaw(replace(plain, context=(), history="0"), 5, told))
    with pytest.raises(PromptError, match="128 at most"):
        before = [(VariantKey("engine", SYSTEM.hash, (), CHUNK.hash), CHUNK.ids)] * (MOST_CONTEXT + 1)
        address_of("engine", [(VariantKey("engine", "", (), SYSTEM.hash), SYSTEM.ids), *before], CHUNK)


def test_its_own_context_had_a_part_in_it() -> None:
    key = VariantKey("engine", "s", ("a", "b"), "chunk")
    lineage = untold_lineage(key, 5)
    assert lineage_flaw(key, 5, lineage) is None
    assert "no part in it" in str(lineage_flaw(key, 5, replace(lineage, seen=("a",))))


def test_names_of_one_pass_are_not_those_of_two() -> None:
    plain = VariantKey("engine", "s", ("a",), "chunk")
    two = (Pass(Span(0, 4), ("d0",)), Pass(Span(4, 9), ("d4",)))
    forged = (Pass(Span(0, 9), ("0 4 d0", "4 9 d4")),)
    key = replace(plain, history=digest_of("0 4 d0", "4 9 d4"))
    assert lineage_flaw(key, 9, Lineage(two, ("a",), complete=False)) is None
    assert "no digests" in str(lineage_flaw(key, 9, Lineage(forged, ("a",), complete=False)))
