"""vLLM inside this process: one thread steps it, any thread may ask."""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import torch
from vllm import SamplingParams
from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown, get_kv_transfer_group, has_kv_transfer_group
from vllm.engine.arg_utils import EngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from ragcache.engine import Forecast, LinkSource, PromptRequest
from ragcache.engine.fingerprint import unchanged
from ragcache.engine.vllm.arguments import MEASURED_LOGPROBS, engine_arguments, engine_spec
from ragcache.engine.vllm.base import LinkingVllm, segments_of
from ragcache.engine.vllm.connector import RagcacheConnector
from ragcache.engine.vllm.cores import Cores, leave_cores
from ragcache.engine.vllm.placement import Exchange
from ragcache.engine.vllm.requests import capture_params
from ragcache.engine.vllm.submission import Deliver
from ragcache.errors import FAULTS, ConfigError, HandingOver, ModelError
from ragcache.keeping import Pause
from ragcache.loader import Loader
from ragcache.rates import Rates
from ragcache.store.base import KVStore
from ragcache.types import Segment, Variant, VariantKey

logger = logging.getLogger(__name__)
T = TypeVar("T")


class VllmEngine(LinkingVllm):
    """Everything that vLLM does happens on one thread of ours; requests run side by side as its scheduler decides."""

    name = "vllm"
    most_logprobs = MEASURED_LOGPROBS

    def __init__(self, folder: Path, dtype: torch.dtype, store: KVStore, *, linking: dict[str, Any], **options: Any):
        """`linking`: fields of LinkSettings. `options`: vLLM's engine arguments.

        Raises ConfigError for a setup that linking cannot serve, ModelError for a model that vLLM cannot run.
        """
        super().__init__()
        if has_kv_transfer_group():  # vLLM keeps it for the whole process
            raise ModelError("this process runs a vLLM engine already: close that one first")
        self._commands: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._deliver: dict[str, Deliver] = {}
        started: Future[None] = Future()
        arguments = engine_arguments(folder, dtype, linking, options)
        self._cores = Cores()
        self._thread = threading.Thread(target=self._run, args=(arguments, store, started), name="ragcache-vllm")
        self._thread.daemon = True  # an application that ends does not wait for requests nobody reads
        self._thread.start()
        started.result()
        leave_cores()
        atexit.register(self.close)  # before vLLM's own end

    # -- any thread -------------------------------------------------------------------------------------------------

    def submit(self, ids: Sequence[int], params: SamplingParams, deliver: Deliver, salt: str | None = None) -> str:
        self.check_tokens(ids)
        self.check_length(len(ids) + (params.max_tokens or 1))
        prompt = {"prompt_token_ids": list(ids)} | ({"cache_salt": salt} if salt else {})
        return self._ask(lambda: self._add(prompt, params, deliver))

    def abort(self, request: str) -> dict[str, Any]:
        if threading.current_thread() is self._thread:  # which would wait for itself
            return self.forsake(request)
        try:
            return self._ask(lambda: self._abort(request))
        except ModelError:
            return {}

    def forsake(self, request: str, tell: Callable[[dict[str, Any]], None] = lambda told: None) -> dict[str, Any]:
        """`tell` hears it on the engine's thread."""
        self._command(lambda: tell(self._abort(request)))
        return {}

    def _capture(self, before: Sequence[Variant], segment: Segment, key: VariantKey, pause: Pause | None) -> Variant:
        """One request of its own; the variants change hands in this process, whatever the store holds. vLLM computes it
        in slices beside others, small ones if it can wait.
        """
        if pause is not None:
            pause()
        segments = segments_of(before, segment)
        keys = [*(variant.key for variant in before), key]
        ids = [token for one in segments for token in one.ids]
        name, exchange = uuid.uuid4().hex, Exchange(before)
        self._worker.exchanges[name] = exchange
        done: Future[Any] = Future()
        params = self.sampling(1, {"kv_transfer_params": capture_params(segments, keys, name, pause is not None)})
        try:
            self.submit(ids, params, lambda output: done.set_result(output) if not output or output.finished else None)
            told = getattr(done.result(), "kv_transfer_params", "the vLLM engine broke")
        finally:
            del self._worker.exchanges[name]
        if exchange.captured is None:
            raise ModelError(f"KV of {len(segment)} tokens was not captured: {told}")
        return exchange.captured

    def sampling(self, max_tokens: int, extra: dict[str, Any] | None = None, **settings: Any) -> SamplingParams:
        try:
            return SamplingParams(
                max_tokens=max_tokens,
                detokenize=False,
                ignore_eos=True,  # ours are among the stop tokens
                extra_args=extra,
                output_kind=RequestOutputKind.DELTA,
                **{"temperature": 0.0, **settings},
            )
        except VLLMValidationError as error:
            raise ConfigError(f"vLLM refuses this sampling: {error}") from error

    @property
    def store(self) -> KVStore:
        """From which it links."""
        store: KVStore = self._connector.scheduler.store
        return store

    def use_store(self, store: KVStore) -> None:
        """Link from another store from the next request on."""
        self._connector.scheduler.store = self._worker.store = store

    def use_loader(self, loader: Loader) -> None:
        """In place of the worker's own, from the next request on; whoever gave it closes it."""
        self._worker.loader = loader

    def use_rates(self, rates: Rates) -> None:
        """Of an earlier run: by them it is judged what is sooner linked, and they learn on."""
        self._connector.scheduler.pace.rates = rates

    def forecast(self, prompt: PromptRequest, source: LinkSource) -> Forecast:
        """As if nothing of it were in vLLM's own prefix cache."""
        forecast: Forecast = self._connector.scheduler.pace.forecast(
            super().forecast(prompt, source).plan, prompt.linker
        )
        return forecast

    def came(self, planned: float, seconds: float) -> None:
        self._connector.scheduler.pace.rates.observe_plan(planned, seconds)

    def forget_prefixes(self) -> None:
        """Empty vLLM's own prefix cache. Raises ModelError while requests run."""
        if not self._ask(self._engine.reset_prefix_cache):
            raise ModelError("vLLM's prefix cache is in use: wait until no request runs")

    def check_integrity(self) -> None:
        """Assert the invariants of the bookkeeping (for tests)."""
        self._ask(self._connector.scheduler.check_integrity)

    def close(self) -> None:
        atexit.unregister(self.close)
        if self._thread.is_alive():
            self._commands.put(None)
            self._thread.join()
            self._cores.take()

    def _ask(self, call: Callable[[], T]) -> T:
        """Run on the engine's thread, between two steps."""
        if not self._thread.is_alive():
            raise ModelError("the vLLM engine has ended: see the log for why, and start another")
        answer = self._command(call)
        while True:
            try:
                return answer.result(timeout=1.0)
            except TimeoutError:
                if not self._thread.is_alive() and not answer.done():
                    raise ModelError("the vLLM engine ended meanwhile: see the log for why") from None

    def _command(self, call: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()

        def run() -> None:
            with HandingOver(answer):
                answer.set_result(call())

        self._commands.put(run)
        return answer

    # -- the engine's thread ----------------------------------------------------------------------------------------

    def _run(self, arguments: EngineArgs, store: KVStore, started: Future[None]) -> None:
        self._cores.take()
        with HandingOver(started, "vLLM did not start"):
            self._start(arguments, store)
            started.set_result(None)
        if started.exception() is not None:
            ensure_kv_transfer_shutdown()  # or this process could start no other
            return
        try:
            while self._obey():
                for output in self._engine.step():
                    self._hand_out(output.request_id, output)
        finally:
            for name in list(self._deliver):
                self._hand_out(name, None)
            self._engine.engine_core.shutdown()

    def _start(self, arguments: EngineArgs, store: KVStore) -> None:
        config = arguments.create_engine_config()
        # The worker in this process too, where the variants are. The CPU platform chooses another by itself.
        config.parallel_config.distributed_executor_backend = "uni"
        with unchanged(Path(config.model_config.model)):
            self._engine = LLMEngine(config, UniProcExecutor, log_stats=False, multiprocess_mode=False)
            self.spec = engine_spec(config)
        self._scheduler = self._engine.engine_core.engine_core.scheduler
        connector, worker_side = self._scheduler.get_kv_connector(), get_kv_transfer_group()
        assert isinstance(connector, RagcacheConnector), connector
        assert isinstance(worker_side, RagcacheConnector), worker_side
        self._connector, self._worker = connector, worker_side.worker
        connector.scheduler.exchanges = self._worker.exchanges
        connector.scheduler.store = self._worker.store = store

    def _obey(self) -> bool:
        """Do what was asked between two steps; waits when there is nothing to step. False at the end."""
        while True:
            try:
                command = self._commands.get(block=not self._scheduler.has_requests())
            except queue.Empty:
                return True
            if command is None:
                return False
            command()

    def _hand_out(self, name: str, output: Any) -> None:
        deliver = self._deliver.get(name)
        if deliver is None:  # aborted
            return
        if output is None or output.finished:
            del self._deliver[name]
        try:
            deliver(output)
        except FAULTS:
            logger.warning("nobody takes the answer of request %s", name, exc_info=True)
            self._abort(name)

    def _add(self, prompt: dict[str, Any], params: SamplingParams, deliver: Deliver) -> str:
        name = uuid.uuid4().hex
        self._deliver[name] = deliver  # outputs carry our name, vLLM's inside has a longer one
        with ExitStack() as undo:  # parameters may be of any type, and vLLM finds some out late
            undo.callback(self._abort, name)
            self._engine.add_request(name, prompt, params)
            undo.pop_all()
        return name

    def _abort(self, name: str) -> dict[str, Any]:
        if self._deliver.pop(name, None) is None:
            return {}
        inside = self._engine.output_processor.external_req_ids.get(name, ())
        told = next((self._connector.scheduler.outcomes.told(request) for request in inside), {})
        self._engine.abort_request([name])
        return told
