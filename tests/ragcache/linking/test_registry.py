"""make_linker: names, settings, and what it says to a typo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from ragcache.errors import ConfigError
from ragcache.linking import LINKERS, linker_spec, make_linker, typed_settings
from ragcache.linking.base import LinkedPrompt, Linker, Positions, tokens_of
from ragcache.linking.boundary import Boundary
from ragcache.linking.cacheblend import CacheBlend
from ragcache.linking.cci import ContextImpact
from ragcache.linking.query import Query


@pytest.mark.parametrize(
    ("spec", "linker"),
    [
        ("boundary", Boundary(k=16)),
        ("boundary:k=8", Boundary(k=8)),
        (" query : first = 4 , ratio = 0.1 ", Query(first=4, ratio=0.1)),
        ("cacheblend:ratio=1,full_layers=3", CacheBlend(ratio=1.0, full_layers=3)),
        ("cci:alpha=2,ratio=none", ContextImpact(alpha=2.0, ratio=None)),
        ("cci:ratio=0.15", ContextImpact(ratio=0.15)),
    ],
)
def test_a_spec_is_its_dataclass(spec: str, linker: Linker) -> None:
    assert make_linker(spec) == linker


@pytest.mark.parametrize("name", LINKERS)
def test_what_describes_a_linker_makes_it(name: str) -> None:
    assert linker_spec(make_linker(name)) == name
    assert make_linker(linker_spec(make_linker(name))) == make_linker(name)


@pytest.mark.parametrize(
    ("linker", "spec"),
    [
        (ContextImpact(alpha=1e-05, ratio=0.5), "cci:alpha=1e-05,ratio=0.5"),
        (Query(first=4, ratio=0.1), "query:first=4,ratio=0.1"),
        (CacheBlend(full_layers=3), "cacheblend:full_layers=3"),
    ],
)
def test_settings_of_its_own_are_written_down(linker: Linker, spec: str) -> None:
    assert linker_spec(linker) == spec
    assert make_linker(spec) == linker


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError) as error:
        make_linker("cii:ratio=1")
    assert "'cii'" in str(error.value)
    assert all(name in str(error.value) for name in LINKERS)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cci:alfa=2", r"linker 'cci' has no setting 'alfa' \(='2'\): choose from alpha, ratio"),
        ("naive:k=2", r"linker 'naive' has no setting 'k' \(='2'\): it takes none"),
        ("boundary:name=x", r"no setting 'name'"),
        ("boundary:k=1.5", r"linker 'boundary': k='1\.5' is not of type int"),
        ("boundary:k=none", r"k='none' is not of type int"),
        ("cci:ratio=most", r"ratio='most' is not of type float or none"),
        ("cci:ratio=2", r"linker 'cci': ratio=2\.0 is out of range"),
        ("boundary:", r"'' is no setting"),
        ("boundary:k", r"'k' is no setting"),
        ("boundary:k=", r"'k=' is no setting"),
        ("boundary:k=1,", r"'' is no setting"),
        ("boundary:k=1,k=2", r"'k' is given twice"),
        ("", r"unknown linker ''"),
        ("auto:scale=1" + "0" * 400, r"has 412 characters: use at most 200"),
        ("first_tokens:k=1" + "0" * 100, r"k=10+ is out of range: choose at least 0, at most 2,147,483,647"),
        ("random:seed=4294967296", r"seed=4294967296 is out of range"),
        ("cci:alpha=1e300", r"alpha=1e\+300 is out of range: choose from 0 to 1,000,000"),
        ("cci:alpha=1e999", r"alpha=inf is out of range"),
        ("auto:ratio=nan", r"ratio=nan is out of range"),
        ("boundary:k=\u0661", r"is not of type int"),
        ("boundary:k=1_6", r"k='1_6' is not of type int"),
        ("auto:ratio=0_1", r"ratio='0_1' is not of type float"),
        ("auto:ratio=infinity", r"is not of type float"),
    ],
)
def test_a_bad_spec_says_what_is_wrong(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_linker(spec)


@dataclass(frozen=True)
class Switched(Linker):
    """Has the kinds of fields that no linker here has yet."""

    name: ClassVar[str] = "switched"
    on: bool = False
    base: str = "naive"

    def select(self, prompt: LinkedPrompt) -> Positions:
        return tokens_of(prompt.chunks if self.on else [])


def test_switches_and_words() -> None:
    assert typed_settings("switched", Switched, {"on": "true", "base": "1"}) == {"on": True, "base": "1"}
    with pytest.raises(ConfigError, match=r"on='1' is not of type bool"):
        typed_settings("switched", Switched, {"on": "1"})
