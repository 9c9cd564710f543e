"""What is known of files has a bound, in entries and in bytes."""

from __future__ import annotations

from ragcache.store.frame import InfoCache
from ragcache.types import VariantInfo
from tests.ragcache.store.conftest import build_variant

SHORT, LONG = build_variant(), build_variant(ids=tuple(range(300)))


def info(long: bool = False) -> VariantInfo:
    variant = LONG if long else SHORT
    return VariantInfo(variant.key, len(variant), 1, "disk", variant.profile, lossless=True)


def known(cache: InfoCache, names: str) -> str:
    return "".join(name for name in names if cache.get(name, 7) is not None)


def test_the_oldest_go_first() -> None:
    cache = InfoCache(kept=3)
    for name in "abcd":
        cache.put(name, 7, info())
    assert known(cache, "abcd") == "bcd"


def test_long_chunks_count_for_more() -> None:
    cache = InfoCache(nbytes=LONG.profile.nbytes + 2 * SHORT.profile.nbytes)
    for name in "abcd":
        cache.put(name, 7, info())
    cache.put("e", 7, info(long=True))
    assert known(cache, "abcde") == "cde"
    cache.put("e", 7, info())  # replaced by a shorter one
    for name in "fgh":
        cache.put(name, 7, info())
    assert known(cache, "cdefgh") == "cdefgh"
    cache.put("i", 7, info(long=True))
    cache.put("j", 7, info(long=True))
    assert known(cache, "cdefghij") == "j"


def test_one_that_is_larger_than_all_is_known_until_the_next() -> None:
    cache = InfoCache(nbytes=1)
    for name in "ab":
        cache.put(name, 7, info(long=True))
        assert known(cache, "ab") == name


def test_another_file_at_the_address_is_not_known() -> None:
    cache = InfoCache()
    cache.put("a", 7, info())
    assert cache.get("a", 8) is None
