from __future__ import annotations

import pytest

from benchmarks.choices import one_of, parse_linkers, parse_numbers, parse_percents, some_of
from ragcache.errors import ConfigError
from ragcache.linking.baselines import Full
from ragcache.linking.boundary import FirstTokens
from ragcache.linking.query import Query


def test_linkers_and_their_settings_are_told_apart() -> None:
    found = parse_linkers("full, query:first=4,ratio=0.2,first_tokens:k=3,full,query")
    assert list(found.items()) == [
        ("full", Full()),
        ("query:first=4,ratio=0.2", Query(first=4, ratio=0.2)),
        ("first_tokens:k=3", FirstTokens(k=3)),
        ("query", Query()),
    ]


@pytest.mark.parametrize("text", ["full,", "", "full,,query"])
def test_an_empty_item_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="has an empty item"):
        parse_linkers(text)


def test_an_unknown_linker_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="unknown linker 'nope': choose from auto, fast, full, naive"):
        parse_linkers("full,nope")


def test_names() -> None:
    assert some_of("alone", "document")("document, alone,document", "context") == ("document", "alone")
    assert one_of("alone", "document")("alone", "context") == "alone"
    for read in (one_of, some_of):
        with pytest.raises(ConfigError, match="unknown system 'lonely': choose from alone, document"):
            read("alone", "document")("lonely", "systems")


def test_numbers() -> None:
    assert parse_numbers("1024, 2048", "tokens") == (1024, 2048)
    for text in ("1k", "0", "-3", "1.5"):
        with pytest.raises(ConfigError, match=f"--tokens {text!r}"):
            parse_numbers(text, "tokens")
    assert parse_percents("0, 5,100", "cached") == (0, 5, 100)
    with pytest.raises(ConfigError, match="--cached '0,101': give numbers from 0 to 100"):
        parse_percents("0,101", "cached")
