from __future__ import annotations

import pytest

from benchmarks.choices import known_settings, parse_contexts, parse_linkers, parse_numbers
from ragcache.errors import ConfigError
from ragcache.linking.first_tokens import FirstTokens
from ragcache.linking.full import Full
from ragcache.linking.query import Query


def test_linkers_and_their_settings_are_told_apart() -> None:
    found = parse_linkers("full, query:first=4,ratio=0.2,first_tokens:k=3,full,query")
    assert list(found.items()) == [
        ("full", Full()),
        ("query:first=4,ratio=0.2", Query(first=4, ratio=0.2)),
        ("first_tokens:k=3", FirstTokens(k=3)),
        ("query", Query()),
    ]


def test_defaults_are_part_of_what_was_measured() -> None:
    (told,) = known_settings(parse_linkers("query:first=4")).values()
    assert told == repr(Query(first=4))
    assert "ratio=" in told


@pytest.mark.parametrize("text", ["full,", "", "full,,query"])
def test_an_empty_item_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="has an empty item"):
        parse_linkers(text)


def test_an_unknown_linker_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="unknown linker 'nope': choose from auto, fast, full, naive"):
        parse_linkers("full,nope")


def test_contexts() -> None:
    assert parse_contexts("document,alone") == ("document", "alone")
    with pytest.raises(ConfigError, match="unknown context 'lonely': choose from alone, document"):
        parse_contexts("lonely")


def test_numbers() -> None:
    assert parse_numbers("1024, 2048", "tokens") == (1024, 2048)
    for text in ("1k", "0", "-3", "1.5"):
        with pytest.raises(ConfigError, match=f"--tokens {text!r}"):
            parse_numbers(text, "tokens")
