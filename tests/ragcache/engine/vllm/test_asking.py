from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ragcache.engine.vllm.asking import KEY, CaptureAsk, LinkAsk, capture_params, link_params, read_ask
from ragcache.errors import ConfigError, PromptError
from ragcache.kvgen import history_of
from ragcache.types import Chunk, Segment, System, Text, VariantKey

SEGMENTS: list[Segment] = [System((1, 2, 3)), Chunk((4, 5)), Text((6,)), Chunk((7, 8, 9)), Text((10,))]
IDS = tuple(token for segment in SEGMENTS for token in segment.ids)


def read(params: Any, ids: tuple[int, ...] = IDS) -> LinkAsk | CaptureAsk | None:
    """As it arrives: through JSON."""
    return read_ask(json.loads(json.dumps(params)), ids, "auto", "engine")


def asked(**changes: Any) -> dict[str, Any]:
    return {KEY: link_params(SEGMENTS, "naive")[KEY] | changes}


def test_what_was_told_is_read() -> None:
    found = read(link_params(SEGMENTS, "boundary:k=4"))
    assert isinstance(found, LinkAsk)
    assert list(found.segments) == SEGMENTS
    assert (found.linker.name, getattr(found.linker, "k", None)) == ("boundary", 4)


def test_other_requests_are_left_alone() -> None:
    assert read_ask(None, IDS, "auto", "engine") is None
    assert read({"do_remote_prefill": True}) is None


def test_the_default_linker_is_the_engine_s() -> None:
    told = asked()
    del told[KEY]["linker"]
    found = read(told)
    assert isinstance(found, LinkAsk)
    assert found.linker.name == "auto"


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({KEY: "auto"}, "list of segments"),
        (asked(segments=None), "list of segments"),
        (asked(segment=[]), "unknown keys"),
        (asked(segments=[{"kind": "system", "tokens": 0}]), "segment 0"),
        (asked(segments=[{"kind": "passage", "tokens": 3}]), "segment 0"),
        (asked(segments=["system"]), "segment 0"),
        (asked(segments=[{"kind": "system", "tokens": 3, "sha256": "0"}]), "sha256"),
        (asked(segments=[{"kind": "text", "tokens": 3}]), "3 tokens, the prompt has 10"),
    ],
)
def test_a_malformed_request_is_refused_with_the_place(params: dict[str, Any], reason: str) -> None:
    with pytest.raises(PromptError, match=reason):
        read(params)


def test_other_tokens_than_those_that_were_named() -> None:
    with pytest.raises(PromptError, match="sha256"):
        read(asked(), (1, 2, 3, 4, 6, *IDS[5:]))
    with pytest.raises(PromptError, match="the prompt has 11"):
        read(asked(), (*IDS, 11))


@pytest.mark.parametrize(("linker", "reason"), [("cacheblend", "torch engine"), ("guess", "unknown linker")])
def test_a_linker_that_vllm_cannot_serve(linker: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read(asked(linker=linker))


# -- capture --------------------------------------------------------------------------------------------------------


def keys() -> list[VariantKey]:
    system, first, second = (segment.hash for segment in (SEGMENTS[0], SEGMENTS[1], SEGMENTS[3]))
    before = [VariantKey("engine", "", (), system), VariantKey("engine", system, ("x",), first)]
    return [*before, VariantKey("engine", system, (first,), second, history_of(before[1:]))]


CAPTURED: list[Segment] = [SEGMENTS[0], SEGMENTS[1], SEGMENTS[3]]
CAPTURED_IDS = (1, 2, 3, 4, 5, 7, 8, 9)


def test_a_capture_is_read() -> None:
    found = read(capture_params(CAPTURED, keys(), "desk"), CAPTURED_IDS)
    assert found == CaptureAsk(tuple(CAPTURED), tuple(keys()), "desk")


@pytest.mark.parametrize("change", [{"system": "0"}, {"context": ()}, {"history": ""}, {"context": ("x",)}])
def test_a_key_that_does_not_name_what_stands_before(change: dict[str, Any]) -> None:
    *before, last = keys()
    with pytest.raises(PromptError, match="what stands before"):
        read(capture_params(CAPTURED, [*before, replace(last, **change)]), CAPTURED_IDS)


def test_keys_of_other_segments() -> None:
    with pytest.raises(PromptError, match="one per segment"):
        read(capture_params(CAPTURED, keys()[:2]), CAPTURED_IDS)
    params = capture_params(CAPTURED, keys())
    del params[KEY]["capture"]["keys"][0]["history"]
    with pytest.raises(PromptError, match="history"):
        read(params, CAPTURED_IDS)
