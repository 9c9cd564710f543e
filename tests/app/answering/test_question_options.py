"""What may be asked for, and what is told of the rest."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.answering import Asked
from app.answering.selection import Limits
from app.settings import MOST_NEIGHBOURS, Settings, load_settings
from ragcache.errors import ConfigError


def test_what_is_asked_wins_over_the_settings() -> None:
    def limits(settings: Settings, **asked: int) -> tuple[int | None, int, int]:
        made = Limits.of(Asked(**asked), settings)  # type: ignore[arg-type]  # all of these are numbers
        return made.chunks, made.tokens, made.neighbours

    assert limits(Settings()) == (5, 0, 0)
    assert limits(Settings(top_tokens=900, neighbours=1)) == (None, 900, 1)
    assert limits(Settings(), top_tokens=900) == (None, 900, 0)
    # A number that somebody has set is meant beside a budget too.
    assert limits(Settings(top_k=3, top_tokens=900)) == (3, 900, 0)
    assert limits(Settings(top_tokens=900), top_k=4) == (4, 900, 0)
    assert limits(Settings(top_tokens=900, neighbours=1), top_tokens=0, neighbours=0) == (5, 0, 0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"top_tokens": -1}, "top_tokens=-1: give 0 or more"),
        ({"top_k": 0}, "top_k=0: ask for at least 1"),
        ({"neighbours": -1}, "neighbours=-1: give 0 to 16"),
        ({"neighbours": 17}, "neighbours=17: give 0 to 16"),
        ({"neighbours": 10**30}, "neighbours=10+: give 0 to 16"),
        ({"top_k": 1.5}, "top_k=1.5: give a whole number"),
        ({"top_k": True}, "top_k=True: give a whole number"),
        ({"top_tokens": "900"}, "top_tokens='900': give a whole number"),
        ({"neighbours": 2.0}, "neighbours=2.0: give a whole number"),
        ({"max_tokens": [1]}, r"max_tokens=\[1\]: give a whole number"),
        ({"prompt_order": "worst"}, "prompt_order='worst': choose from collection, cached, best"),
        ({"retrieval": "magic"}, "retrieval='magic': choose from hybrid, vector, keyword"),
        ({"mmr": "half"}, "mmr='half': give a number from 0 to 1"),
        ({"mmr": float("nan")}, "mmr=nan: give a number from 0 to 1"),
        ({"mmr": Decimal("0.5")}, "mmr=.*: give a number from 0 to 1"),
        ({"history": "abc"}, "history='abc': give pairs"),
        ({"history": [1, 2]}, r"history=\[1, 2\]: give pairs"),
        ({"history": ["ab", "cd"]}, r"history=\['ab', 'cd'\]: give pairs"),
        ({"history": [("ab", 3)]}, r"history=\[\('ab', 3\)\]: give pairs"),
        ({"history": [b"ab"]}, r"history=\[b'ab'\]: give pairs"),
        ({"collection": 5}, "collection=5: give a text"),
        ({"linker": 5}, "linker=5: give a text"),
        ({"where": "a.md"}, "where='a.md': give lists of values"),
        ({"where": {"source": "a.md"}}, "where={'source': 'a.md'}: give lists of values"),
        ({"where": {"document": 5}}, "where={'document': 5}: give lists of values"),
        ({"history": 5}, "history=5: give pairs"),
        ({"quotes": "no"}, "quotes='no': give True or False"),
        ({"stop": "\n"}, r"stop='\\n': give up to 4 texts of 1 to 256 characters"),
        ({"stop": ["a"] * 5}, "stop=.*: give up to 4 texts"),
        ({"stop": [""]}, r"stop=\[''\]: give"),
        ({"stop": ["a" * 257]}, "stop=.*: give"),
        ({"stop": [5]}, r"stop=\[5\]: give"),
        ({"stop": 5}, "stop=5: give"),
        ({"sampling": 0.5}, "sampling=0.5: give a Sampling of ragcache"),
    ],
)
def test_what_cannot_be_asked_is_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=f"^{told}"):
        Asked(**options)


def test_a_setting_has_the_bound_of_a_question() -> None:
    assert Asked(neighbours=MOST_NEIGHBOURS) == Asked(neighbours=load_settings(None, neighbours=16).neighbours)
    with pytest.raises(ConfigError, match="NEIGHBOURS=17 given as a flag should be less than or equal to 16"):
        load_settings(None, neighbours=17)


def test_numbers_of_numpy_are_numbers() -> None:
    asked = Asked(top_k=np.int64(3), mmr=np.float32(0.5))  # type: ignore[arg-type]  # as callers have them
    assert (Limits.of(asked, Settings()).chunks, asked.mmr) == (3, 0.5)


def test_a_number_of_the_environment_is_meant_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".env"
    file.write_text("RAGCACHE_TOP_K=3\n")
    file.chmod(0o600)
    assert Limits.of(Asked(), load_settings(file, top_tokens=900)).chunks == 3
    monkeypatch.setenv("RAGCACHE_TOP_K", "4")
    assert Limits.of(Asked(), load_settings(None, top_tokens=900)).chunks == 4
    monkeypatch.delenv("RAGCACHE_TOP_K")
    assert Limits.of(Asked(), load_settings(None, top_tokens=900)).chunks is None
