"""What a capture may name, and what is read of one that is not allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ragcache.address import MOST_CONTEXT
from ragcache.engine.vllm.requests import (
    KEY,
    MOST_CONTEXTS,
    CaptureRequest,
    LinkRequest,
    capture_params,
    link_params,
    read_request,
)
from ragcache.errors import ConfigError, PromptError
from ragcache.types import Chunk, System, Text, VariantKey

SYSTEM, CHUNK, QUESTION = System((1, 2, 3)), Chunk((4, 5)), Text((6,))
IDS = (*SYSTEM.ids, *CHUNK.ids)


def keys(system: System = SYSTEM, border: str = "") -> list[VariantKey]:
    first = VariantKey("engine", "", (), system.hash, border=system.border)
    return [first, VariantKey("engine", system.hash, (), CHUNK.hash, border=border)]


def read(params: dict[str, Any], ids: tuple[int, ...] = IDS, **more: Any) -> LinkRequest | CaptureRequest | None:
    return read_request(params, ids, "auto", "engine", **more)


def test_a_border_is_read_with_its_segment() -> None:
    within = replace(CHUNK, border="ann")
    linked = read(link_params([SYSTEM, within, QUESTION], "naive"), (*IDS, *QUESTION.ids))
    assert isinstance(linked, LinkRequest)
    assert [segment.border for segment in linked.segments] == ["", "ann", ""]
    captured = read(capture_params([SYSTEM, within], keys(border="ann")))
    assert isinstance(captured, CaptureRequest)
    assert captured.keys[-1].border == "ann"


@pytest.mark.parametrize("border", [None, 1, ["ann"], "a b", "a/b", "x" * 129])
def test_a_border_is_a_name(border: Any) -> None:
    params = link_params([SYSTEM, CHUNK, QUESTION], "naive")
    params[KEY]["segments"][1]["border"] = border
    with pytest.raises(PromptError, match="segment 1 has the border"):
        read(params, (*IDS, *QUESTION.ids))
    params = capture_params([SYSTEM, CHUNK], keys())
    params[KEY]["capture"]["keys"][1]["border"] = border
    with pytest.raises(PromptError, match="key 1"):
        read(params)


def test_a_capture_does_not_leave_the_border_of_what_it_saw() -> None:
    private = replace(SYSTEM, border="ann")
    read(capture_params([private, CHUNK], keys(private, border="ann")))
    for segments, named in (([private, CHUNK], keys(private)), ([SYSTEM, replace(CHUNK, border="ann")], keys())):
        with pytest.raises(PromptError, match="another border than its key"):
            read(capture_params(segments, named))
    with pytest.raises(PromptError, match="place 0 is within the border 'ann'"):
        read(capture_params([private, replace(CHUNK, border="bob")], keys(private, border="bob")))


def test_what_is_not_allowed_is_not_read() -> None:
    """It could cost those who wait: a client may name what it likes."""
    params = capture_params([SYSTEM, CHUNK], keys(), "exchange")
    params[KEY]["capture"]["keys"][0]["context"] = ["no hash"] * 1_000_000
    asked: list[str] = []

    def allow(exchange: str) -> None:
        asked.append(exchange)
        raise ConfigError("captures are off")

    with pytest.raises(ConfigError, match="captures are off"):
        read(params, allow=allow)
    assert asked == ["exchange"]


def test_all_contexts_together_are_bounded() -> None:
    count = MOST_CONTEXTS // MOST_CONTEXT + 1
    chunks = [Chunk((place,)) for place in range(1, count)]
    segments, ids = [SYSTEM, *chunks], (*SYSTEM.ids, *range(1, count))
    named = [replace(keys()[1], context=("0" * 64,) * MOST_CONTEXT)] * count
    with pytest.raises(PromptError, match="more than 16,384 context chunks"):
        read(capture_params(segments, named), ids)
