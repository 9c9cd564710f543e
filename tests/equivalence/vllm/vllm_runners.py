"""Both of vLLM's GPU model runners call a connector in their own order, and hold what spans need under their own names.
Neither runs without a GPU; their connector sides do, over this engine's real worker.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from time import perf_counter, sleep
from types import SimpleNamespace as Some
from typing import Any

import pytest
import torch
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import RequestStatus
from vllm.v1.worker.gpu.kv_connector import ActiveKVConnector
from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin

from benchmarks.caches import prefill_prompt
from ragcache.engine.vllm.budget import Budget
from ragcache.engine.vllm.orders import PromptRows
from ragcache.engine.vllm.requests import link_params
from ragcache.types import Segment
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.ragcache.engine.vllm.conftest import NamesDouble
from tests.tiny import assert_close, make_chunks, make_question, make_system
from tests.waiting import LOOK_S

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(30, 25, 28, 22)
PROMPT: list[Segment] = [SYSTEM, DOCUMENT[2], DOCUMENT[0], DOCUMENT[3], QUESTION]
IDS = [token for segment in PROMPT for token in segment.ids]
BLOCKS = tuple(range(9, 20))
RUNNERS = {"V1": "vllm.v1.worker.gpu_model_runner", "V2": "vllm.v1.worker.gpu.model_runner"}
Step = Callable[[Any], Any]  # vLLM's SchedulerOutput, as far as a connector side reads it -> KVConnectorOutput


@pytest.fixture(scope="module")
def pair(open_pair: OpenPair) -> Iterator[Pair]:
    with open_pair("llama", block_size=32) as opened:
        list(opened.torch.ingest(SYSTEM, DOCUMENT))
        yield opened


def make_step(runner: str, config: Any, forward: bool) -> Step:
    """What a runner does with its connector in one step, with requests of its own to run beside or without."""
    if runner == "V1":
        return lambda output: KVConnectorModelRunnerMixin.kv_connector_no_forward(output, config).kv_connector_output
    side = ActiveKVConnector(config, {})
    if not forward:
        return lambda output: side.no_forward(output).kv_connector_output

    def step(output: Any) -> Any:
        side.pre_forward(output, Some(idx_mapping=None, req_ids=["another"], num_tokens=1), {})
        side.finish_forward()
        return side.post_forward(set())

    return step


def park(pair: Pair, linker: str) -> Any:
    """As vLLM's scheduler does with a new request -> the request."""
    connector = pair.engine._connector
    connector.scheduler.arrived("asked", IDS, link_params(PROMPT, linker), NamesDouble())
    while connector.scheduler.matched("asked", 0) is None:
        connector.scheduler.step(Budget(0, False, 1))
        sleep(LOOK_S)
    external = connector.scheduler.matched("asked", 0)
    connector.scheduler.allocated("asked", BLOCKS, external)
    request = connector._parked["asked"] = Some(
        request_id="asked", num_computed_tokens=len(IDS), status=RequestStatus.RUNNING
    )
    return request


def run(pair: Pair, step: Step, scheduled: int) -> list[str]:
    """Steps until vLLM goes on with the request -> the requests that were said to have their KV."""
    connector, finished = pair.engine._connector, list[str]()
    deadline = perf_counter() + 30  # beside other requests a step does not wait for what is being read
    while perf_counter() < deadline:
        names = dict.fromkeys(finished, 1)
        planned = SchedulerOutput.make_empty()
        planned.total_num_scheduled_tokens, planned.num_scheduled_tokens = scheduled, names
        planned.kv_connector_metadata = connector.build_connector_meta(planned)
        output = step(planned)
        if finished:
            return finished
        if output is not None:
            connector.update_connector_output(output)
            finished = sorted(output.finished_recving or ())
        sleep(LOOK_S)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("linker", ["naive", "first_tokens:k=4", "query", "auto:ratio=0.3,depth=0.34"])
@pytest.mark.parametrize(("runner", "scheduled"), [("V1", 0), ("V2", 0), ("V2", 1)])
def test_a_request_is_linked_through_either_runner(pair: Pair, runner: str, scheduled: int, linker: str) -> None:
    engine = pair.engine
    expected = prefill_prompt(pair.torch, PROMPT, linker=linker).logits

    def linked() -> torch.Tensor:
        request = park(pair, linker)
        step = make_step(runner, engine._engine.vllm_config, bool(scheduled))
        assert run(pair, step, scheduled) == ["asked"]
        left = range(request.num_computed_tokens, len(IDS))
        (hidden,) = engine._worker.spans.compute([PromptRows(tuple(IDS[left.start :]), tuple(left), BLOCKS)])
        assert engine._connector.request_finished(request, list(BLOCKS))[1] is not None
        return torch.as_tensor(engine._worker.spans.model.compute_logits(hidden[-1:])).float()

    assert_close(engine._ask(linked)[0], expected)
    engine._connector.scheduler.check_integrity()


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_runner_holds_what_spans_ask_of_it(runner: str) -> None:
    made = importlib.import_module(RUNNERS[runner]).GPUModelRunner
    assigned = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(made)))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    assert callable(made.get_model)
    assert {"device", "attn_groups"} <= assigned
    assert {"kernel_block_sizes", "_kernel_block_sizes"} & assigned
    assert runner == "V2" or {"supports_mm_inputs", "enable_prompt_embeds"} <= assigned, (
        "asked of the CPU's, which is V1"
    )
