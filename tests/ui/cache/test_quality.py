"""What the page tells of the quality gate."""

from __future__ import annotations

from typing import Any

from ui.cache.page import about, gated

STATE: dict[str, Any] = {"model": "smollm2", "kv": "auto", "codec": "bf16"}


def quality(collection: str, kl: float | None, told: str = "") -> dict[str, Any]:
    return {"collection": collection, "kl": kl, "measured": 8, "linked": "asked", "told": told}


def test_how_near_answers_are_is_told_of_what_is_looked_at() -> None:
    state = STATE | {"quality": [quality("a", 0.0123), quality("b", 0.2), quality("c", None)]}
    assert "answers within 0.200 nats a token of those without the cache, by 16 answers measured" in about(state)
    assert "answers within 0.012 nats a token of those without the cache, by 8 answers measured" in about(state, "a")
    assert "nats" not in about(state, "c")
    assert "nats" not in about(STATE), "a server of before tells nothing of it"


def test_what_the_gate_does_is_told_with_the_collections_name() -> None:
    drifted = quality("<b>shore</b>", 0.4, "answers are computed without the cache")
    state = STATE | {"quality": [quality("a", 0.01), drifted]}
    assert gated(state, None) == ["“<b>shore</b>”: answers are computed without the cache."]
    assert gated(state, "a") == [] == gated(STATE, None)
