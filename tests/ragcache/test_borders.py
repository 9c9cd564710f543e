"""KV within a border is found by those within it alone, and nothing outside is computed over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.caches import prefill_prompt
from ragcache.address import Placed, address_of, may_see, system_address
from ragcache.cache import ChunkCache
from ragcache.engine.vllm.block_names import link_name
from ragcache.errors import PromptError
from ragcache.planning import plan_prompt
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, System, VariantKey
from tests.tiny import Tiny, make_chunks, make_question, make_system

SYSTEM, QUESTION = make_system(), make_question()
A, B, C = make_chunks(20, 31, 18)


def within(border: str, *segments: Segment) -> list[Segment]:
    return [replace(segment, border=border) for segment in segments]


def chunks(border: str, *segments: Chunk) -> list[Chunk]:
    return [replace(segment, border=border) for segment in segments]


@pytest.fixture
def cache(tiny: Tiny) -> ChunkCache:
    return ChunkCache(tiny.engine, open_store(codec="raw"), "naive", keep_missed=False)


def tiers(cache: ChunkCache, prompt: Sequence[Segment]) -> list[str]:
    return [chunk.tier for chunk in prefill_prompt(cache, prompt).report.chunks]


@pytest.mark.parametrize("other", ["", "bob", "Ann", "ann2"])
def test_another_border_finds_nothing(cache: ChunkCache, other: str) -> None:
    list(cache.ingest(SYSTEM, chunks("ann", A, B)))
    assert tiers(cache, [SYSTEM, *within("ann", A, B), QUESTION]) == ["ram"] * 2
    assert tiers(cache, [SYSTEM, *within(other, A, B), QUESTION]) == [COMPUTED] * 2


def test_a_prompt_mixes_what_several_may_see(cache: ChunkCache) -> None:
    list(cache.ingest(SYSTEM, chunks("ann", A)))
    list(cache.ingest(SYSTEM, [B]))
    list(cache.ingest(SYSTEM, chunks("team", C)))
    assert tiers(cache, [SYSTEM, *within("ann", A), B, *within("team", C), QUESTION]) == ["ram"] * 3


def keys(cache: ChunkCache, border: str, *found: Chunk) -> list[VariantKey]:
    leads = [VariantKey(cache.engine.spec.fingerprint, SYSTEM.hash, (), one.hash, border=border) for one in found]
    return [info.key for lead in leads for info in cache.store.variants(lead.family)]


@pytest.mark.parametrize("keeper", ["document", "prompt"])
def test_what_everybody_sees_is_computed_over_no_private_chunk(tiny: Tiny, keeper: str) -> None:
    cache = ChunkCache(tiny.engine, open_store(codec="raw"), "naive")
    document = [*chunks("ann", A), B, *chunks("ann", C)]
    if keeper == "document":
        list(cache.ingest(SYSTEM, document))
    else:
        list(cache.generate([SYSTEM, *document, QUESTION], max_tokens=1))
    (public,) = keys(cache, "", B)
    (private,) = keys(cache, "ann", C)
    assert public.context == ()
    assert private.context == (A.hash, B.hash)
    found = cache.store.get(private)
    assert found is not None
    assert found.variant.lineage.seen == (A.hash, B.hash)
    assert keys(cache, "", A, C) == []


def test_behind_a_private_system_everything_is_private(cache: ChunkCache) -> None:
    system = replace(SYSTEM, border="ann")
    list(cache.ingest(system, [A, *chunks("ann", B)]))
    assert keys(cache, "", A, B) == []
    assert len(keys(cache, "ann", A, B)) == 2
    assert tiers(cache, [system, A, B, QUESTION]) == ["ram"] * 2
    assert tiers(cache, [SYSTEM, A, B, QUESTION]) == [COMPUTED] * 2
    assert tiers(cache, [replace(system, border="bob"), A, B, QUESTION]) == [COMPUTED] * 2


def test_a_private_system_stands_before_no_other_border(cache: ChunkCache) -> None:
    with pytest.raises(PromptError, match="border 'ann'"):
        cache.generate([replace(SYSTEM, border="ann"), *within("bob", A), QUESTION])
    with pytest.raises(PromptError, match="border 'ann'"):
        list(cache.ingest(replace(SYSTEM, border="ann"), chunks("bob", A)))


@pytest.mark.parametrize("border", ["a\nb", "a b", "é", "x" * 129, "../x"])
def test_a_border_is_a_name(cache: ChunkCache, border: str) -> None:
    for act in (
        lambda: cache.generate([SYSTEM, *within(border, A), QUESTION]),
        lambda: list(cache.ingest(SYSTEM, chunks(border, A))),
        lambda: cache.system_variant(replace(SYSTEM, border=border)),
    ):
        with pytest.raises(PromptError, match="is no name"):
            act()


def test_an_address_is_never_of_two_borders() -> None:
    """Whatever name is chosen: a border that is a hash too."""
    inside = VariantKey("engine", "s", ("a",), "b", border="c")
    for other in (
        VariantKey("engine", "s", ("a", "b"), "c"),
        VariantKey("engine", "s", ("a",), "b"),
        VariantKey("engine", "s", ("a",), "b", border="d"),
        VariantKey("engine", "s", ("c", "a"), "b"),
        VariantKey("c", "engine", ("s", "a"), "b"),
    ):
        assert other.digest != inside.digest
        assert other.family != inside.family


def test_what_stands_before_may_be_seen() -> None:
    system = (VariantKey("engine", "", (), SYSTEM.hash), SYSTEM.ids)
    private: Placed = (VariantKey("engine", SYSTEM.hash, (), A.hash, border="ann"), A.ids)
    assert may_see("ann", private[0])
    assert address_of("engine", [system, private], replace(B, border="ann")).border == "ann"
    for other in ("", "bob"):
        with pytest.raises(PromptError, match="place 1 is within the border 'ann'"):
            address_of("engine", [system, private], replace(B, border=other))


def test_what_others_may_share_ends_at_a_border(cache: ChunkCache) -> None:
    list(cache.ingest(SYSTEM, [A, *chunks("ann", B)]))
    name = cache.engine.spec.fingerprint
    plan = plan_prompt([SYSTEM, A, *within("ann", B), QUESTION], name, cache.store)
    assert [chunk.candidates[0].exact for chunk in plan.chunks] == [True, True]
    assert plan.exact_until == len(SYSTEM) + len(A)
    system = replace(SYSTEM, border="ann")
    list(cache.ingest(system, [A]))
    assert plan_prompt([system, A, QUESTION], name, cache.store).exact_until == 0


def test_links_of_two_borders_have_two_names(cache: ChunkCache) -> None:
    """Blocks that were computed are shared by name."""
    prompts = [[SYSTEM, A, QUESTION], [SYSTEM, *within("ann", A), QUESTION], [*within("ann", SYSTEM), A, QUESTION]]
    plans = [plan_prompt(prompt, cache.engine.spec.fingerprint, cache.store) for prompt in prompts]
    assert len({link_name(plan, cache.linker, 0).whole for plan in plans}) == 3


def test_a_system_text_of_somebodys_own_serves_nobody_else(cache: ChunkCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no store; in memory, it is for its owner, and the oldest go where they take too much of that."""
    list(cache.ingest(SYSTEM, [A, B]))

    def tier(owner: str, own: System) -> str:
        stream = cache.generate([own, A, B, QUESTION], max_tokens=1, behind=SYSTEM, owner=owner)
        list(stream)
        assert [chunk.tier for chunk in stream.report.chunks] == ["ram"] * 2, "KV behind another System"
        return stream.report.system_tier

    first, second = make_system(9), make_system(11)
    assert [tier(owner, first) for owner in ("ann", "ann", "bob", "bob", "ann")] == [
        COMPUTED, "ram", COMPUTED, "ram", "ram",
    ]  # fmt: skip
    for own in (first, second):
        family = system_address(cache.engine.spec.fingerprint, own.hash).family
        assert not cache.store.variants(family)
    monkeypatch.setattr("ragcache.kvgen.OWNED_BYTES", 1)
    assert [tier("ann", second), tier("ann", second)] == [COMPUTED] * 2
