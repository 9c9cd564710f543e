"""A vLLM server, or what stands before it, that says what it was not asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragcache.cache import ChunkCache
from ragcache.engine import TokenStream
from ragcache.engine.vllm.requests import KEY
from ragcache.engine.vllm.served import UNTOLD, ServedVllmEngine
from ragcache.errors import ConfigError, ModelError, RagcacheError
from ragcache.sampling import Sampling
from ragcache.store import open_store
from tests.ragcache.engine.vllm.strange_server import Script, engine_before
from tests.tiny import VOCABULARY, make_chunks, make_question, make_system
from tests.waiting import wait_until

PROMPT = [make_system(), *make_chunks(20), make_question()]
TOKENS = 4
PATIENCE_S = 60.0
STOPPED = {"text": "", "token_ids": [3], "finish_reason": "stop"}


@pytest.fixture
def script() -> Script:
    return Script(report={KEY: {}})


@pytest.fixture
def engine(script: Script, tmp_path: Path) -> Iterator[ServedVllmEngine]:
    with engine_before(script, tmp_path / "model") as made:
        yield made


def answer(engine: ServedVllmEngine, **sampling: Any) -> TokenStream:
    cache = ChunkCache(engine, open_store(ram_bytes=1, codec="raw"), "naive", keep_missed=False)
    return cache.generate(PROMPT, max_tokens=TOKENS, sampling=Sampling(**sampling))


def test_a_whole_answer_is_handed_out(engine: ServedVllmEngine, script: Script) -> None:
    logprobs = {
        "tokens": ["token_id:5"], "token_logprobs": [-1.5], "top_logprobs": [{"token_id:7": -0.5}],
    }  # fmt: skip
    script.choices = [
        {"text": "a", "token_ids": [5], "logprobs": logprobs},
        {"text": "", "token_ids": [], "finish_reason": "length"},
    ]
    stream = answer(engine, logprobs=1)
    assert list(stream) == [5]
    assert stream.finish_reason == "length"
    assert [(one.token, one.logprob, one.top) for one in stream.logprobs] == [(5, -1.5, ((7, -0.5),))]


def test_usage_that_nobody_asked_for_is_passed_over(engine: ServedVllmEngine, script: Script) -> None:
    """Of a server with --enable-force-include-usage, or with something before it that asks for that."""
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    script.choices = [{"token_ids": [5, 6]}, STOPPED, {"choices": [], "usage": usage}]
    assert list(answer(engine)) == [5, 6, 3]


@pytest.mark.parametrize(
    "choices",
    [
        [{"text": "It was built", "finish_reason": None}, {"text": ".", "finish_reason": "stop"}],
        [{"text": "It was built", "token_ids": [], "finish_reason": "stop"}],
        [{"text": "", "finish_reason": "stop"}],
        [{"text": "", "token_ids": None, "finish_reason": "stop"}],
        [{"text": "", "token_ids": {"5": 5}, "finish_reason": "stop"}],
        [{"token_ids": ["a"]}, STOPPED],
        [{"token_ids": [-5]}, STOPPED],
        [{"token_ids": [VOCABULARY]}, STOPPED],
        [{"token_ids": [10**30]}, STOPPED],
        [{"token_ids": [True]}, STOPPED],
        [{"token_ids": [1.0]}, STOPPED],
        [{"token_ids": [5] * TOKENS}, STOPPED],
        [{"token_ids": [5], "finish_reason": ["stop"]}],
        [{"token_ids": [5]}, []],
    ],
)
def test_what_is_no_answer_is_no_whole_one(engine: ServedVllmEngine, script: Script, choices: list[Any]) -> None:
    script.choices = choices
    stream = answer(engine)
    with pytest.raises(ModelError, match="the vLLM server"):
        list(stream)
    assert stream.finish_reason != "stop"


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        [],
        {},
        {"tokens": [], "token_logprobs": [], "top_logprobs": []},
        {"tokens": ["token_id:6"], "token_logprobs": [-1.0], "top_logprobs": [None]},
        {"tokens": ["token_id:5"], "token_logprobs": [None], "top_logprobs": [None]},
        {"tokens": ["token_id:5"], "token_logprobs": [float("nan")], "top_logprobs": [None]},
        {"tokens": ["token_id:5"], "token_logprobs": [10**400], "top_logprobs": [None]},
        {"tokens": [" the"], "token_logprobs": [-1.0], "top_logprobs": [None]},
        {"tokens": [5], "token_logprobs": [-1.0], "top_logprobs": [7]},
    ],
)
def test_probabilities_that_were_asked_for_are_told(engine: ServedVllmEngine, script: Script, logprobs: Any) -> None:
    script.choices = [{"token_ids": [5], "logprobs": logprobs}, STOPPED]
    with pytest.raises(ModelError, match="the vLLM server"):
        list(answer(engine, logprobs=1))


def test_what_answers_without_an_end_is_hung_up(engine: ServedVllmEngine, script: Script) -> None:
    script.choices, script.held = [{"token_ids": [5, 6]}] * 50, threading.Event()
    stream = answer(engine)
    with pytest.raises(ModelError, match="the vLLM server"):
        list(stream)
    assert stream.tokens == [5, 6] * (TOKENS // 2)
    assert script.left.wait(PATIENCE_S)


@pytest.mark.parametrize("leave", ["enough", "close"])
def test_an_answer_that_is_left_early_is_told_of_all_the_same(
    engine: ServedVllmEngine, script: Script, leave: str
) -> None:
    chunk = {"chunk": "c", "tokens": 20, "tier": "computed", "computed": 20}
    script.choices, script.held, script.report = [{"token_ids": [5]}], threading.Event(), {KEY: {"chunks": [chunk]}}
    stream = answer(engine)
    assert next(iter(stream)) == 5
    getattr(stream, leave)()
    assert list(stream) == []
    assert script.left.wait(PATIENCE_S)
    assert [one.computed for one in stream.report.chunks] == [20]
    answered, told = (asked["kv_transfer_params"][KEY] for asked in script.asked)
    assert answered["name"] == told["report"]


@pytest.mark.parametrize(
    ("told", "computed", "incidents"),
    [
        ({"chunks": [{"chunk": "c", "tokens": 20, "tier": "computed", "computed": 20, "new": 1}], "new": {}}, 20, []),
        ({"charged": "much", "chunks": [{"chunk": "c"}], "before_question": 9}, 0, ["(chunks)", "(charged)"]),
        ({"seconds": None, "incidents": [1], "timeline": [{"kind": 3}]}, 0, ["(seconds)", "(incidents)", "(timeline)"]),
        (["odd"], 0, ["understood"]),
    ],
)
def test_an_answer_of_another_version_is_whole_whatever_it_tells_of_itself(
    engine: ServedVllmEngine, script: Script, told: Any, computed: int, incidents: list[str]
) -> None:
    script.choices = [{"token_ids": [5]}, {"token_ids": [6], "finish_reason": "stop"}]
    script.report = {KEY: told}
    cache = ChunkCache(engine, open_store(ram_bytes=1, codec="raw"), "naive", keep_missed=False)
    stream = cache.generate(PROMPT, max_tokens=TOKENS)
    assert list(stream) == [5, 6]
    assert sum(one.computed for one in stream.report.chunks) == computed
    assert [one.endswith(tail) for one, tail in zip(stream.report.incidents, incidents, strict=True)] == [True] * len(
        incidents
    )


def test_whoever_is_forsaken_waits_for_no_report(engine: ServedVllmEngine, script: Script) -> None:
    script.choices, script.held = [{"token_ids": [5]}], threading.Event()
    stream = answer(engine)
    assert next(iter(stream)) == 5
    stream.cancel()
    assert list(stream) == []
    assert stream.finish_reason == "cancelled"
    assert script.left.wait(PATIENCE_S)
    assert len(script.asked) == 1


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (400, ConfigError, "vLLM refuses this: top_p is 7"),
        (422, ConfigError, "vLLM refuses this: top_p is 7"),
        (401, ModelError, "wants a key"),
        (403, ModelError, "wants a key"),
        (404, ModelError, "answers 404"),
        (500, ModelError, "answers 500"),
    ],
)
def test_what_vllm_refuses_is_told_to_whom_it_is_for(
    engine: ServedVllmEngine, script: Script, status: int, kind: type[RagcacheError], reason: str
) -> None:
    script.refusal = (status, "top_p is 7")
    for ask in (lambda: list(answer(engine)), lambda: engine.capture([], make_system())):
        with pytest.raises(RagcacheError, match=reason) as told:
            ask()
        assert type(told.value) is kind
        assert ("127.0.0.1" in str(told.value)) is (told.value.status >= 500)  # which is shown to whoever runs it alone


def test_an_answer_without_a_report_does_not_say_where_the_server_is(
    engine: ServedVllmEngine, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script.choices, script.report = [STOPPED], None
    stream = answer(engine)
    assert list(stream) == [3]
    assert stream.report.incidents == [UNTOLD]
    assert "answers 500: no report" in caplog.text


@pytest.mark.parametrize("leave", ["cancel", "close"])
def test_a_question_ends_before_the_server_says_anything(engine: ServedVllmEngine, script: Script, leave: str) -> None:
    script.headless, script.held = True, threading.Event()
    stream = answer(engine)
    wait_until(lambda: script.asked, PATIENCE_S)
    getattr(stream, leave)()
    assert list(stream) == []
    assert stream.finish_reason == "cancelled"
    assert len(script.asked) == 1


def test_what_is_hung_up_is_not_sent_any_more(engine: ServedVllmEngine) -> None:
    asked = engine._server.stream({})
    asked.hang_up()
    with pytest.raises(ModelError, match="hung up"):
        asked.send()
