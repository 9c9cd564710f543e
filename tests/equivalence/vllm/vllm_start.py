"""An engine that cannot start says why, and the next one starts all the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import KVTransferConfig

from ragcache.engine import resources as cores
from ragcache.engine.vllm import setup
from ragcache.engine.vllm.cores import set_num_threads
from ragcache.engine.vllm.orders import Probe
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.errors import ConfigError, ModelError, RagcacheError
from ragcache.types import FloatArray
from tests.equivalence.vllm.conftest import OpenPair
from tests.tiny import make_chunks, make_question, make_system

OURS = {
    "kv_connector": "RagcacheConnector",
    "kv_connector_module_path": "ragcache.engine.vllm.connector",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
}
SEVERAL = KVTransferConfig(
    kv_connector="MultiConnector",
    kv_role="kv_both",
    kv_load_failure_policy="recompute",
    kv_connector_extra_config={"connectors": [OURS]},
)
PLACE, WRITE, READ = SpanRunner.place, SpanRunner.write, SpanRunner.question_attention


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"linking": {"linkers": "auto"}}, ConfigError, "unknown keys"),
        ({"worker_cls": "vllm.v1.worker.cpu_worker.CPUWorker"}, ConfigError, "--worker-cls"),
        ({"max_model_len": 100_000}, ModelError, "did not start"),
        ({"load_format": "dummy"}, ConfigError, "load-format dummy"),
        ({"enable_prompt_embeds": True}, ConfigError, "enable-prompt-embeds"),
        ({"enable_chunked_prefill": False}, ConfigError, "chunked prefill is off"),
        ({"kv_transfer_config": SEVERAL}, ConfigError, "the connector is MultiConnector"),
    ],
)
def test_a_start_that_fails(
    open_pair: OpenPair, options: dict[str, Any], error: type[RagcacheError], reason: str
) -> None:
    with pytest.raises(error, match=reason), open_pair(**options):
        pass


def test_files_that_change_between_their_loading_and_their_naming(
    open_pair: OpenPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = setup.folder_fingerprint

    def racing(folder: Path, *arguments: Any) -> str:
        shutil.copy(folder / "model.safetensors", folder / "new")
        (folder / "new").replace(folder / "model.safetensors")
        return named(folder, *arguments)

    monkeypatch.setattr(setup, "folder_fingerprint", racing)
    with pytest.raises(ModelError, match="changed while they were read"), open_pair():
        pass


def test_one_engine_at_a_time(open_pair: OpenPair) -> None:
    system, (chunk,) = make_system(), make_chunks(9)
    segments = [system, chunk, make_question()]
    with open_pair() as pair:
        with pytest.raises(ModelError, match="runs a vLLM engine already"), open_pair():
            pass
        list(pair.torch.ingest(system, [chunk]))
        generation = pair.vllm.generate(segments, max_tokens=3)
        assert len(list(generation)) == 3
        assert generation.report.reused == 9, "the refusal harms nobody"
    with pytest.raises(ModelError, match="has ended"):
        pair.vllm.generate(segments)
    with open_pair() as pair:
        assert len(list(pair.vllm.generate(segments, max_tokens=3))) == 3


def test_a_start_warms_up(open_pair: OpenPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the first question to vLLM's own server takes up to a second more."""
    lengths: list[int] = []
    run = SpanRunner.question_attention

    def seen(runner: SpanRunner, probe: Probe, keys: Any) -> FloatArray:
        lengths.append(len(probe.rows.ids))
        return run(runner, probe, keys)

    monkeypatch.setattr(SpanRunner, "question_attention", seen)
    with open_pair():
        assert len(set(lengths)) == 2


@pytest.mark.parametrize(
    ("name", "wrong", "reason"),
    [
        ("place", lambda runner, one, room: PLACE(runner, replace(one, k=one.k * 1.2), room), "follows a placed chunk"),
        ("write", lambda runner, room, *rest: WRITE(runner, room * 1.5, *rest), "follows a placed chunk"),
        ("question_attention", lambda runner, *rest: READ(runner, *rest) * 2, "a question reads is measured wrongly"),
        ("scale", 0.3, "layer 0 attends otherwise than by a scaled softmax"),
    ],
)
def test_a_start_finds_what_is_wrong(
    open_pair: OpenPair, monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any, reason: str
) -> None:
    monkeypatch.setattr(SpanRunner, name, wrong)
    with pytest.raises(ModelError, match=reason), open_pair():
        pass


@pytest.fixture
def three_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(cores, "read_usage", lambda: None)  # whoever else computes here does not count
    before = torch.get_num_threads()
    set_num_threads(3)
    yield 3
    set_num_threads(before)


def test_the_engine_has_the_cores(open_pair: OpenPair, three_cores: int) -> None:
    """Other threads with helpers would put the engine's to sleep (ragcache/engine/vllm/cores.py)."""
    with open_pair() as pair, ThreadPoolExecutor(1) as later:
        engine = pair.engine
        assert engine._ask(torch.get_num_threads) == three_cores
        assert torch.get_num_threads() == 1, "of the thread that opened it"
        assert later.submit(torch.get_num_threads).result() == 1
        assert engine._worker.loader._threads.submit(torch.get_num_threads).future.result() == 1
    assert torch.get_num_threads() == three_cores
