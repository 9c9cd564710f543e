from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.address import history_of
from ragcache.engine.vllm.block_names import foreign_input
from ragcache.engine.vllm.requests import (
    KEY,
    MOST_SEGMENTS,
    CaptureRequest,
    LinkRequest,
    capture_params,
    chat_params,
    check_linker,
    link_params,
    read_request,
)
from ragcache.errors import ConfigError, PromptError
from ragcache.linking import make_linker
from ragcache.types import Chunk, Segment, System, Text, VariantKey, ids_hash

SEGMENTS: list[Segment] = [System((1, 2, 3)), Chunk((4, 5)), Text((6,)), Chunk((7, 8, 9)), Text((10,))]
OTHER = ids_hash((99,))
IDS = tuple(token for segment in SEGMENTS for token in segment.ids)


def read(params: Any, ids: tuple[int, ...] = IDS) -> LinkRequest | CaptureRequest | None:
    """As it arrives: through JSON."""
    return read_request(json.loads(json.dumps(params)), ids, "auto", "engine")


def asked(**changes: Any) -> dict[str, Any]:
    return {KEY: link_params(SEGMENTS, "naive")[KEY] | changes}


def test_what_was_told_is_read() -> None:
    found = read(link_params(SEGMENTS, "boundary:k=4"))
    assert isinstance(found, LinkRequest)
    assert list(found.segments) == SEGMENTS
    assert (found.linker.name, getattr(found.linker, "k", None), found.always) == ("boundary", 4, False)


def test_other_requests_are_left_alone() -> None:
    assert read_request(None, IDS, "auto", "engine") is None
    assert read({"do_remote_prefill": True}) is None


def test_the_default_linker_is_the_engine_s() -> None:
    told = asked()
    del told[KEY]["linker"]
    found = read(told)
    assert isinstance(found, LinkRequest)
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
        (asked(segments=[{"kind": "text", "tokens": True}]), "segment 0"),
        (asked(segments=[{"kind": "text", "tokens": 10**400}]), "a number of 1,329 bits tokens"),
        (asked(segments=[{"kind": "text", "tokens": 1}] * 11), "11 segments, and 10 tokens"),
        (asked(segments=[{"kind": "text", "tokens": 10, "hash": ""}]), "segment 0 has unknown keys 'hash'"),
        (asked(linker=None), "linker is None"),
        (asked(linker=["auto"]), "linker is a list of 1"),
        ({KEY: {"capture": []}}, "capture is a list of 0"),
        ({KEY: {"capture": {}}}, "captures nothing"),
        ({KEY: {"capture": {"linker": "auto"}}}, "unknown keys 'linker'"),
        ({KEY: {"capture": {}, "segments": []}}, "unknown keys 'segments'"),
        ([], "give an object"),
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


def test_a_prompt_has_so_many_segments_at_most() -> None:
    for count, read_or_refused in ((MOST_SEGMENTS, nullcontext()), (MOST_SEGMENTS + 1, pytest.raises(PromptError))):
        segments = [System((1,)), *[Text((2,))] * (count - 1)]
        with read_or_refused:
            read(link_params(segments, "naive"), tuple(token for segment in segments for token in segment.ids))


def test_a_message_shows_the_start_of_what_it_refuses() -> None:
    """Of whatever a client sends: its full text may be longer than the prompt, or deeper than Python's stack."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, "x" * 1_000_000, "\ud800" * 1_000_000, 10**10_000, {"x" * 1_000_000: 1}, float("nan")):
        for params in ({KEY: value}, asked(segments=[value]), asked(linker=value), {KEY: {"capture": value}}):
            with pytest.raises((PromptError, ConfigError)) as error:
                read_request(params, IDS, "auto", "engine")
            assert len(str(error.value)) < 500
            str(error.value).encode()


@pytest.mark.parametrize("name", ["", "x", "\ud800" * 64, None, 1, "A" * 64])
@pytest.mark.parametrize("place", ["chunk", "context"])
def test_an_address_is_made_of_hashes(place: str, name: Any) -> None:
    params = capture_params(CAPTURED, keys())
    params[KEY]["capture"]["keys"][1][place] = [name] if place == "context" else name
    with pytest.raises(PromptError, match="key 1"):
        read(params, CAPTURED_IDS)


@pytest.mark.parametrize(("linker", "why"), [("cacheblend", "torch"), ("guess", "unknown")])
def test_a_linker_that_vllm_cannot_serve(linker: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(asked(linker=linker))


# -- capture --------------------------------------------------------------------------------------------------------


OTHER = ids_hash((99,))


def keys() -> list[VariantKey]:
    system, first, second = (segment.hash for segment in (SEGMENTS[0], SEGMENTS[1], SEGMENTS[3]))
    before = [VariantKey("engine", "", (), system), VariantKey("engine", system, (OTHER,), first)]
    return [*before, VariantKey("engine", system, (first,), second, history_of(before[1:]))]


CAPTURED: list[Segment] = [SEGMENTS[0], SEGMENTS[1], SEGMENTS[3]]
CAPTURED_IDS = (1, 2, 3, 4, 5, 7, 8, 9)


def test_a_capture_is_read() -> None:
    found = read(capture_params(CAPTURED, keys(), "exchange"), CAPTURED_IDS)
    assert found == CaptureRequest(tuple(CAPTURED), tuple(keys()), "exchange")
    for exchange in ("exchange", ""):  # a client, who has none, holds no room for long
        found = read(capture_params(CAPTURED, keys(), exchange, patient=True), CAPTURED_IDS)
        assert found == CaptureRequest(tuple(CAPTURED), tuple(keys()), exchange, patient=bool(exchange))
    with pytest.raises(PromptError, match="patient is 1: choose true or false"):
        read(capture_params(CAPTURED, keys(), patient=1), CAPTURED_IDS)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"system": OTHER}, {"context": ()}, {"history": ""}, {"context": (OTHER,)}])
def test_a_key_that_does_not_name_what_stands_before(change: dict[str, Any]) -> None:
    *before, last = keys()
    with pytest.raises(PromptError, match="what stands before"):
        read(capture_params(CAPTURED, [*before, replace(last, **change)]), CAPTURED_IDS)


def test_keys_of_other_segments() -> None:
    with pytest.raises(PromptError, match="2 keys for the 3 segments"):
        read(capture_params(CAPTURED, keys()[:2]), CAPTURED_IDS)
    params = capture_params(CAPTURED, keys())
    del params[KEY]["capture"]["keys"][0]["history"]
    with pytest.raises(PromptError, match="history"):
        read(params, CAPTURED_IDS)


SYSTEM, FIRST, SECOND = CAPTURED


@pytest.mark.parametrize(
    ("segments", "named", "reason"),
    [
        ([], [], "captures nothing"),
        ([SECOND], [2], "one of the kind system, then chunks"),  # "behind System and a chunk", behind nothing
        ([FIRST], [1], "one of the kind system, then chunks"),
        ([Text(SYSTEM.ids)], [0], "one of the kind system, then chunks"),
        ([FIRST, SYSTEM], [1, 0], "one of the kind system, then chunks"),
        ([SYSTEM, SYSTEM], [0, 0], "one of the kind system, then chunks"),
        ([SYSTEM, Text((6,)), SECOND], [0, 1, 2], "one of the kind system, then chunks"),
        ([SYSTEM, FIRST, Text((6,))], [0, 1, 2], "one of the kind system, then chunks"),
        ([SYSTEM, SECOND], [1, 2], "not the System segment"),
        ([SYSTEM, SECOND, SECOND], [0, 1, 2], "place 1 is not its chunk"),
        ([SYSTEM, SECOND], [0, 2], "what stands before"),
        ([SYSTEM, FIRST], [0, 1], "what stands before"),
        ([SYSTEM, FIRST, SECOND], [0, 1], "2 keys for the 3 segments"),
        ([SYSTEM, FIRST], [0, 1, 2], "3 keys for the 2 segments"),
    ],
)
def test_a_capture_under_a_false_address_is_refused(segments: list[Segment], named: list[int], reason: str) -> None:
    ids = tuple(token for segment in segments for token in segment.ids)
    with pytest.raises(PromptError, match=reason):
        read(capture_params(segments, [keys()[place] for place in named]), ids)


@pytest.mark.parametrize(
    "change",
    [
        {"system": OTHER},  # a chunk behind another System
        {"system": ""},
        {"chunk": OTHER},
        {"context": (f"{OTHER}\n{OTHER}",)},  # two names in one
        {"context": ("../../x",)},
        {"context": (OTHER.upper(),)},
        {"history": "\n"},
    ],
)
def test_a_context_of_another_address_is_refused(change: dict[str, Any]) -> None:
    first, context, last = keys()
    named = [first, replace(context, **change)]
    behind = replace(last, history=history_of(named[1:]))
    with pytest.raises(PromptError, match=r"place 1|key 1"):
        read(capture_params(CAPTURED, [*named, behind]), CAPTURED_IDS)


@dataclass
class Arrived:
    """What a request of vLLM's has beside its ids."""

    mm_features: list[object] = field(default_factory=list)
    prompt_embeds: object = None
    lora_request: object = None
    resumable: bool = False


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Arrived(), None),
        (Arrived(mm_features=[object()]), "images"),
        (Arrived(prompt_embeds=object()), "embeddings"),
        (Arrived(lora_request=object()), "adapter"),
        (Arrived(resumable=True), "goes on"),
    ],
)
def test_what_the_ids_of_a_request_do_not_tell(request_: Arrived, expected: str | None) -> None:
    found = foreign_input(request_)
    assert found is None if expected is None else expected in str(found)


def test_a_text_at_the_end_takes_what_is_left() -> None:
    told = link_params(SEGMENTS, "naive")
    del told[KEY]["segments"][-1]["tokens"]
    found = read(told)
    assert isinstance(found, LinkRequest)
    assert list(found.segments) == SEGMENTS
    told[KEY]["segments"].append({"kind": "text"})
    with pytest.raises(PromptError, match="segment 4"):
        read(told)
    told[KEY]["segments"][-2]["tokens"] = 1
    with pytest.raises(PromptError, match="segment 5"):  # nothing is left for it
        read(told)


def test_a_chat_carries_the_ids_of_its_prompt() -> None:
    told = chat_params(SEGMENTS, "naive")
    assert tuple(told.pop("prompt_token_ids")) == IDS
    assert told == link_params(SEGMENTS, "naive")


def test_linkers_that_vllm_cannot_serve_are_named() -> None:
    assert check_linker(make_linker("fast")).name == "fast"
    with pytest.raises(ConfigError, match="'cacheblend' does not run inside vLLM"):
        check_linker(make_linker("cacheblend"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
told_segments = st.fixed_dictionaries(
    {}, optional={"kind": st.sampled_from(["system", "chunk", "text"]) | json_values, "tokens": json_values,
                  "sha256": json_values},
)  # fmt: skip
told_keys = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("system", "context", "chunk", "history", "more"), json_values)
)
lists_of_segments = st.lists(told_segments, max_size=3) | json_values
captures = st.fixed_dictionaries({"segments": lists_of_segments, "keys": st.lists(told_keys, max_size=3) | json_values})
asks = st.fixed_dictionaries({"segments": lists_of_segments}, optional={"linker": json_values})


@given(json_values | asks | captures.map(lambda capture: {"capture": capture}))
def test_nothing_that_json_can_say_brings_an_engine_down(told: Any) -> None:
    """A wrong request is refused in these two kinds of errors, which the scheduler answers plainly."""
    try:
        found = read_request({KEY: told}, IDS, "auto", "engine")
    except (PromptError, ConfigError):
        return
    assert found is None or sum(map(len, found.segments)) == len(IDS)
