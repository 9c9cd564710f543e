"""What every store promises, on each kind of store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from ragcache.errors import StoreError
from ragcache.store.codec import open_codec
from ragcache.types import Variant
from tests.codecs import CODEC_ROWS


def assert_kept(got: Variant, put: Variant, codec: str) -> None:
    """All but K and V exactly; these within what the codec promises."""
    assert (got.key, got.ids, got.profile.lengths) == (put.key, put.ids, put.profile.lengths)
    for name in ("inter", "intra", "received"):
        np.testing.assert_array_equal(getattr(got.profile, name), getattr(put.profile, name))
    for here, there, dim in ((got.k, put.k, 2), (got.v, put.v, 3)):
        assert here.dtype == there.dtype
        assert here.shape == there.shape
        assert ((here.float() - there.float()).abs() <= CODEC_ROWS[codec](there, dim)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("ids", [(1,), (5, 6, 7), tuple(range(37))])
def test_get_gives_what_was_put(stores: Any, make_variant: Any, ids: tuple[int, ...], dtype: torch.dtype) -> None:
    store, variant = stores.open(), make_variant(ids, dtype=dtype)
    store.put(variant)
    fetched = store.get(variant.key)
    assert_kept(fetched.variant, variant, stores.codec)
    assert fetched.nbytes > 0
    assert fetched.seconds > 0
    assert fetched.tier == store.stats()[0].tier


@pytest.mark.parametrize("lossless", [True, False])
def test_what_was_lost_is_told_of_the_copy_that_is_there(stores: Any, make_variant: Any, lossless: bool) -> None:
    store, variant = stores.open(), make_variant(lost=() if lossless else ("before",))
    store.put(variant)
    expected = lossless and open_codec(stores.codec).lossless(variant.k.dtype)
    (info,) = store.variants(variant.key.family)
    assert info.lossless is expected
    assert store.get(variant.key).variant.lossless is expected


def test_an_unknown_key_is_none(stores: Any, make_variant: Any) -> None:
    store = stores.open()
    store.put(make_variant((1, 2)))
    for other in (make_variant((1, 3)), make_variant((1, 2), context=("c1", "c0")), make_variant((1, 2), context=())):
        assert store.get(other.key) is None
    assert {stats.misses for stats in store.stats()} == {3}


def test_variants_of_a_family_are_listed_once(stores: Any, make_variant: Any) -> None:
    store = stores.open()
    family = [make_variant(context=context) for context in ((), ("a",), ("a", "b"))]
    for variant in [*family, make_variant(ids=(9,)), make_variant(fingerprint="engine-b")]:
        store.put(variant)
    infos = {info.key: info for info in store.variants(family[0].key.family)}
    assert len(store.variants(family[0].key.family)) == len(infos) == len(family)
    for variant in family:
        info = infos[variant.key]
        assert info.tokens == len(variant)
        assert info.nbytes > 0
        np.testing.assert_array_equal(info.profile.inter, variant.profile.inter)
        assert info.profile.lengths == variant.profile.lengths
    assert store.variants("f" * 64) == []


def test_put_replaces(stores: Any, make_variant: Any) -> None:
    store = stores.open()
    store.put(make_variant(seed=1))
    newer = make_variant(seed=2)
    store.put(newer)
    assert_kept(store.get(newer.key).variant, newer, stores.codec)
    assert {stats.entries for stats in store.stats()} == {1}
    (info,) = store.variants(newer.key.family)
    np.testing.assert_array_equal(info.profile.intra, newer.profile.intra)


def test_replacing_needs_no_room_of_its_own(stores: Any, make_variant: Any) -> None:
    store = stores.open(budget=1)
    store.put(make_variant(seed=1))
    store.put(make_variant(seed=2))
    assert_kept(store.get(make_variant().key).variant, make_variant(seed=2), stores.codec)
    assert {stats.evictions for stats in store.stats()} == {0}


def test_a_larger_replacement_evicts_others_not_itself(stores: Any, make_variant: Any) -> None:
    store = stores.open(budget=2)
    a, b, larger = make_variant(), make_variant((1, 1, 1)), make_variant(layers=3)
    store.put(a)
    store.put(b)
    store.put(larger)
    assert store.get(b.key) is None
    assert_kept(store.get(a.key).variant, larger, stores.codec)
    assert {stats.entries for stats in store.stats()} == {1}


def test_delete(stores: Any, make_variant: Any) -> None:
    store, variant, other = stores.open(), make_variant(), make_variant(context=())
    store.put(variant)
    store.put(other)
    assert store.delete(variant.key)
    assert not store.delete(variant.key)
    assert store.get(variant.key) is None
    assert [info.key for info in store.variants(variant.key.family)] == [other.key]
    assert {stats.entries for stats in store.stats()} == {1}


def test_the_least_recently_used_goes_first(stores: Any, make_variant: Any) -> None:
    store = stores.open(budget=3)
    a, b, c, d = (make_variant((i, i, i)) for i in range(4))
    for variant in (a, b, c):
        store.put(variant)
    store.get(a.key)
    store.put(d)
    assert [store.get(variant.key) is not None for variant in (a, b, c, d)] == [True, False, True, True]
    for stats in store.stats():
        assert (stats.entries, stats.evictions) == (3, 1)
        assert stats.nbytes <= stats.budget


def test_of_exact_prefixes_no_more_than_their_share_stays(stores: Any, make_variant: Any) -> None:
    """What was used longest ago goes first, a use that brought nothing counts, and pins and others' entries stay."""
    store = stores.open(budget=8)
    own = [make_variant((i, i, i), fingerprint="engine-prefix") for i in range(4)]
    others = [make_variant((i, i, i)) for i in range(3)]
    for variant in (*own, *others):
        store.put(variant)
    store.renew(own[0].key)
    store.renew(make_variant((9, 9, 9)).key)  # which is not there
    store.pin(own[1].key)

    def there() -> list[bool]:
        return [store.get(variant.key) is not None for variant in (*own, *others)]

    store.trim("engine-prefix", 1.0)
    store.trim("engine-a", 0.0)
    assert there() == [True] * 7
    store.renew(own[0].key)
    room = min(stats.nbytes // stats.entries for stats in store.stats())
    store.trim("engine-prefix", 4 / 8, room // 2)
    assert there() == [True, True, False, True, *[True] * 3]
    store.trim("engine-prefix", 0.0)
    assert there() == [False, True, False, False, *[True] * 3]
    store.pin(own[1].key, False)
    own[0] = make_variant((5, 5, 5), fingerprint="another-prefix")
    store.put(own[0])
    store.trim("-prefix", 0.0)
    assert there() == [*[False] * 4, *[True] * 3], "of whatever engine"
    assert not any(stats.evictions for stats in store.stats()), "the budget was large enough"


@pytest.mark.parametrize(
    ("delete", "ends"),
    [
        (lambda store, key: store.drop_chunk("engine-b", "system", "nothing"), True),
        (lambda store, key: store.drop_seeing(["nothing"]), True),
        (lambda store, key: store.drop_prefixes(), True),
        (lambda store, key: store.delete(key), False),
        (lambda store, key: store.trim("-prefix", 0.0), False),
    ],
)
def test_what_was_computed_before_a_deletion_is_not_put_after_it(
    stores: Any, make_variant: Any, delete: Any, ends: bool
) -> None:
    """Whatever it was of; evictions and single deletions end no era."""
    store, a, b = stores.open(), make_variant((1, 2)), make_variant((3, 4))
    era = store.era()
    assert store.put_within(era, a)
    delete(store, a.key)
    assert store.put_within(era, b) is not ends
    assert (store.get(b.key) is None) is ends
    assert store.put_within(store.era(), b)
    assert store.get(b.key) is not None


def test_a_pinned_entry_stays_until_let_go(stores: Any, make_variant: Any) -> None:
    store = stores.open(budget=2)
    pinned, b, c, d = (make_variant((i, i, i)) for i in range(4))
    store.pin(pinned.key)
    for variant in (pinned, b, c, d):
        store.put(variant)
    assert store.get(pinned.key) is not None
    store.pin(pinned.key, False)
    store.get(d.key)
    store.put(b)
    assert [store.get(variant.key) is not None for variant in (pinned, b, d)] == [False, True, True]


def test_delete_ends_the_pin(stores: Any, make_variant: Any) -> None:
    store = stores.open(budget=1)
    store.put(make_variant())
    store.pin(make_variant().key)
    assert store.delete(make_variant().key)
    store.put(make_variant())
    store.put(make_variant((1, 1, 1)))
    assert store.get(make_variant().key) is None


def test_what_cannot_fit_is_refused_and_changes_nothing(stores: Any, make_variant: Any) -> None:
    store = stores.open(budget=2)
    a, b = make_variant((1, 1, 1)), make_variant((2, 2, 2))
    store.put(a)
    store.put(b)
    with pytest.raises(StoreError, match="budget"):
        store.put(make_variant(tuple(range(500))))
    store.pin(a.key)
    store.pin(b.key)
    with pytest.raises(StoreError, match="budget"):
        store.put(make_variant((3, 3, 3)))
    assert store.get(a.key) is not None
    assert store.get(b.key) is not None
    assert store.get(make_variant((3, 3, 3)).key) is None


def test_a_sound_store_has_no_flaws(stores: Any, make_variant: Any) -> None:
    store = stores.open()
    for i in range(4):
        store.put(make_variant((i,)))
    assert store.verify() == []


def test_stats_and_entries_after_a_restart(stores: Any, make_variant: Any) -> None:
    before = stores.open()
    for i in range(3):
        before.put(make_variant((i,)))
    after = stores.open()
    kept = make_variant((1,))
    fetched = after.get(kept.key)
    if not stores.survives_restart:
        assert fetched is None
        return
    assert fetched.tier == "disk"
    assert_kept(fetched.variant, kept, stores.codec)
    assert [(stats.entries, stats.nbytes) for stats in before.stats() if stats.tier == "disk"] == [
        (stats.entries, stats.nbytes) for stats in after.stats() if stats.tier == "disk"
    ]


def test_a_slice_of_a_prompt_is_kept_without_the_prompt(stores: Any, make_variant: Any) -> None:
    store, whole = stores.open(), make_variant(tuple(range(400)))
    other = make_variant((1, 2))
    part = Variant(other.key, (1, 2), whole.k[:, :, 5:7], whole.v[:, :, 5:7], other.profile, other.lineage)
    store.put(part)
    assert_kept(store.get(part.key).variant, part, stores.codec)
    assert all(stats.nbytes < whole.nbytes / 4 for stats in store.stats())


def test_threads(stores: Any, make_variant: Any) -> None:
    store = stores.open(budget=4)  # one for each thread: what the others write meanwhile cannot go for it
    variants = [make_variant((i, i, i)) for i in range(6)]

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(40):
            variant = variants[random.integers(len(variants))]
            match random.integers(4):
                case 0:
                    store.put(variant)
                case 1:
                    store.delete(variant.key)
                case 2:
                    assert all(info.key == variant.key for info in store.variants(variant.key.family))
                case _:
                    fetched = store.get(variant.key)
                    if fetched is not None:
                        assert_kept(fetched.variant, variant, stores.codec)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert store.verify() == []
