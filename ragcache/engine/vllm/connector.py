"""vLLM's connector interface: `--kv-transfer-config '{"kv_connector": "RagcacheConnector", "kv_connector_module_path":
"ragcache.engine.vllm.connector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute"}'`.

A linked request goes through vLLM as one whose KV comes from elsewhere: it is parked with all of its blocks, the
workers fill these (cached KV placed, some rows computed), and vLLM goes on with the last token of the prompt.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm.distributed import get_tensor_model_parallel_rank
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
)
from vllm.platforms import current_platform
from vllm.v1.request import RequestStatus

from ragcache.engine.vllm.block_names import PromptNames, foreign_input
from ragcache.engine.vllm.budget import Budget
from ragcache.engine.vllm.figures import LinkPromMetrics, LinkStats
from ragcache.engine.vllm.gauge import gauge
from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.link_worker import LinkWorker
from ragcache.engine.vllm.loaders import file_loader
from ragcache.engine.vllm.orders import Answers, Orders
from ragcache.engine.vllm.own_time import OwnTime, Steps, counted
from ragcache.engine.vllm.selfcheck import check_spans
from ragcache.engine.vllm.setup import Setup, read_setup
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.errors import FAULTS, ModelError
from ragcache.policy import Work
from ragcache.store.base import KVStore

logger = logging.getLogger(__name__)
WAITING = RequestStatus.WAITING_FOR_REMOTE_KVS


@dataclass
class StepOrders(KVConnectorMetadata):
    orders: Orders


@dataclass
class StepAnswers(KVConnectorWorkerMetadata):
    answers: Answers

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        assert isinstance(other, StepAnswers), other
        return StepAnswers(self.answers.joined(other.answers))


def _ordinary_work(scheduled: Any) -> Work:
    """What vLLM computes in a step for requests that run."""
    cached = scheduled.scheduled_cached_reqs
    done = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    done |= {request.req_id: request.num_computed_tokens for request in scheduled.scheduled_new_reqs}
    rows = attended = 0
    for name, count in scheduled.num_scheduled_tokens.items():  # plain sums: there may be hundreds
        start = done.get(name, 0)
        rows += count
        attended += count * (2 * start + count + 1) // 2
    return Work(rows=rows, attended=attended)


class RagcacheConnector(KVConnectorBase_V1):
    """vLLM makes one for its scheduler and one for each worker."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any):
        super().__init__(vllm_config, role, kv_cache_config)
        self._setup: Setup = read_setup(vllm_config, kv_cache_config)
        self._manager: Any = None  # vLLM's, of its KV
        self._scheduler: LinkScheduler | None = None
        self._worker: LinkWorker | None = None
        self._finished: set[str] = set()
        self._failed: set[str] = set()
        self._parked: dict[str, Any] = {}  # vLLM's requests
        self._resumed: dict[str, Any] = {}  # of these, those that are to go on, until vLLM takes them up
        self._taken_up: dict[str, Any] = {}  # in the last step
        self._own: list[KVStore] = []  # an engine in this process gives its own in their place
        self.own, self._steps = OwnTime(), Steps()
        if role is KVConnectorRole.SCHEDULER:
            self._scheduler = self._setup.scheduler()
            self.own = self._scheduler.own
            self._own.append(self._scheduler.store)

    # -- worker -----------------------------------------------------------------------------------------------------

    def attach_runner(self, runner: Any) -> None:
        """The worker's hand-over of the model."""
        spans = SpanRunner(runner, self._vllm_config)
        store = self._setup.worker_store(get_tensor_model_parallel_rank())
        self._own.append(store)
        settings = self._setup.settings
        self._worker = LinkWorker(spans, store, file_loader(settings.load_timeout_s, name=settings.loader))
        self.own = self._worker.own

    def warm_up(self) -> None:
        """As vLLM does with its own forward, so that the first question does not wait for it. Raises ModelError for a
        model that linking would serve wrongly.
        """
        check_spans(self.worker.spans)
        if self.worker.spans.device.type == "cuda":  # where a pass of few rows tells nothing of one of many
            self.worker.clock.add(gauge(self.worker.spans))

    @property
    def worker(self) -> LinkWorker:
        if self._worker is None:
            raise ModelError(
                "the connector was given no model: start vLLM with --worker-cls ragcache.engine.vllm.worker.SpanWorker"
            )
        return self._worker

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._obey(forward_context)

    @counted
    def _obey(self, forward_context: Any) -> None:
        orders = self._get_connector_metadata().orders
        if orders or self.worker.busy:
            self.worker.obey(orders, self.worker.spans.room_beside(forward_context))
        self._finished.update(orders.finish)
        self._failed.update(orders.failed)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """A request is parked until all of its layers are there."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing is saved in passing: KVGen captures by requests of its own."""

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        self.worker.clock.begin()

    def wait_for_save(self) -> None:
        """The end of a step, which began when it was bound."""
        work = self._get_connector_metadata().orders.work
        if work is not None:
            self.worker.stepped(work)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        results = KVConnectorTransferResults(finished_recving=self._finished, failed_recving=self._failed)
        self._finished, self._failed = set(), set()
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self.worker.take_spoilt()

    @counted
    def build_connector_worker_meta(self) -> StepAnswers | None:
        answers = self.worker.take_answers()
        return None if answers is None else StepAnswers(answers)

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
        if self._scheduler is not None:
            self._scheduler.close()
        while self._own:
            try:
                self._own.pop().close()
            except FAULTS:  # the engine ends all the same
                logger.warning("a store was not closed", exc_info=True)

    # -- scheduler --------------------------------------------------------------------------------------------------

    @property
    def scheduler(self) -> LinkScheduler:
        assert self._scheduler is not None, "asked of a worker's connector"
        return self._scheduler

    @counted
    def on_new_request(self, request: Any) -> None:
        self._steps.asked()
        self.scheduler.arrived(
            request.request_id,
            request.prompt_token_ids or (),
            request.kv_transfer_params,
            PromptNames(request, self._setup.hash_block, self._held),
            foreign_input(request),
        )

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self._manager = kv_cache_manager

    def _held(self, request: Any) -> int:
        """Positions that the prefix cache has of it, by its names."""
        return 0 if self._manager is None else int(self._manager.get_computed_blocks(request)[1])

    @counted
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        count = self.scheduler.matched(request.request_id, num_computed_tokens)
        return count, bool(count)

    @counted
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self.scheduler.runs(request.request_id)
        if num_external_tokens:
            self.scheduler.allocated(request.request_id, blocks.get_block_ids()[0], num_external_tokens)
            self._parked[request.request_id] = request

    @counted
    def build_connector_meta(self, scheduler_output: Any) -> StepOrders:
        cached = scheduler_output.scheduled_cached_reqs.req_ids
        self._steps.ordered(goes_on=bool(cached or self._parked))
        used = scheduler_output.total_num_scheduled_tokens
        left = self._vllm_config.scheduler_config.max_num_batched_tokens - used
        scheduled = scheduler_output.num_scheduled_tokens
        prefill = sum(count for count in scheduled.values() if count > 1)
        work = _ordinary_work(scheduler_output)
        promoted = [name for name, request in self._resumed.items() if request.status != WAITING]
        budget = Budget(left, used > 0, self._spans_per_step(), prefill, work)
        orders = self.scheduler.step(budget, dict.fromkeys((*scheduled, *promoted)))
        # vLLM shows their blocks to others from now on, whether it computes them or not.
        self._taken_up = {name: self._resumed.pop(name) for name in promoted}
        if orders.compute:  # before vLLM's forward, or in it; other orders come after it
            scheduler_output.has_sync_kv_loads = True
        for name in orders.finish:
            self._resume(name, self._parked.pop(name))
        return StepOrders(orders)

    def _resume(self, name: str, request: Any) -> None:
        """A parked request counts as computed up to its end; the workers do not know it yet, so it can still be told
        where to go on, as vLLM itself does after a load that failed.
        """
        position = self.scheduler.resumes(name)
        if position is not None:
            request.num_computed_tokens = position
            self._resumed[name] = request

    def _spans_per_step(self) -> int:
        """Attention backends of GPUs have room for as many sequences as vLLM may run; the CPU's takes any number."""
        limit: int = self._vllm_config.scheduler_config.max_num_seqs
        return 1 << 20 if current_platform.is_cpu() else limit

    def get_kv_connector_stats(self) -> LinkStats | None:
        """Asked of both sides at the end of a step; what workers took for a request comes with their answers."""
        if self._scheduler is None:
            return LinkStats({"own/worker": own}) if (own := self.own.take()) else None
        self._steps.ended()
        totals = self._scheduler.outcomes.totals.take()
        if own := self.own.take():
            totals |= {"own/scheduler": own, "own/steps": self._steps.take()}
        return LinkStats(totals) if totals else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> LinkStats:
        return LinkStats(data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> LinkPromMetrics:
        return LinkPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    @counted
    def update_connector_output(self, connector_output: Any) -> None:
        if isinstance(connector_output.kv_connector_worker_meta, StepAnswers):
            self.scheduler.answered(connector_output.kv_connector_worker_meta.answers)
        if spoilt := connector_output.invalid_block_ids:
            self._spoilt(spoilt)

    def _spoilt(self, blocks: set[int]) -> None:
        """What runs on them vLLM computes anew; not what it has taken up and not scheduled, nor what is parked and was
        to go on where we say. Nobody finds them by name: who computes them may be gone before it has.
        """
        self._manager.evict_blocks(blocks)
        for name in self._parked:
            if not blocks.isdisjoint(self._blocks(name)):
                self.scheduler.failed(name, "what it shares with another prompt was not computed")
        for name, request in self._taken_up.items():
            left = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
            if left and not blocks.isdisjoint(self._blocks(name)):
                self._manager.free(request)  # as vLLM does after a load that failed
                request.num_computed_tokens = 0

    def _blocks(self, name: str) -> Sequence[int]:
        blocks: Sequence[int] = self._manager.get_block_ids(name)[0]
        return blocks

    @counted
    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        for known in (self._resumed, self._taken_up):
            known.pop(request.request_id, None)
        return False, self.scheduler.gone(request.request_id)
