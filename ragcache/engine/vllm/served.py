"""vLLM in a server of its own: it answers and captures over HTTP, and shares the folder of KV with us."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ragcache.engine import EngineSpec, end_tokens
from ragcache.engine.fingerprint import Digests, folder_fingerprint
from ragcache.engine.vllm.base import LinkingVllm, segments_of
from ragcache.engine.vllm.requests import KEY, capture_params, named, report_params
from ragcache.engine.vllm.served_answer import AskedAnswer, ServedOutput, ServedPiece
from ragcache.engine.vllm.server import ServedRequest, VllmServer
from ragcache.engine.vllm.submission import Deliver
from ragcache.errors import FAULTS, ModelError, RagcacheError, StoreError
from ragcache.keeping import Pause
from ragcache.store.base import KVStore
from ragcache.types import Segment, Variant, VariantKey

logger = logging.getLogger(__name__)
REPORT_S = 60.0  # nobody's answer waits longer for what it may do without
UNTOLD = "no report: the vLLM server does not tell it, the log says why"
ELSEWHERE = (
    "the vLLM server has captured a segment, and it is not in our folder: it must run the same model folder in the "
    "same number format, with `store` naming the same folder and `captures` on (docs/vllm.md)"
)


@dataclass(frozen=True)
class ServedReading:
    """Of an answer, by a thread. `last`: what it was ended with, when nothing of it will be delivered any more."""

    asked: ServedRequest
    last: Future[ServedOutput | None] = field(default_factory=Future)


class ServedVllmEngine(LinkingVllm):
    """Prompts are linked there; no model is loaded here. Its requests end when this does."""

    name = "vllm-server"

    def __init__(self, server: VllmServer, folder: Path, dtype: torch.dtype, store: KVStore, digests: Digests):
        """`store`: over the folder that the server's is over, where what it captures is looked for; closed with this.

        Raises ModelError for a server that serves nothing, or does not answer.
        """
        super().__init__()
        card = next(iter(server.models()), {})
        most = card.get("max_model_len")
        if not isinstance(card.get("id"), str) or type(most) is not int:
            raise ModelError(f"the server at {server.url} serves no model as vLLM does: name the address of one")
        self.spec = _spec(folder, dtype, most, digests)
        self._server, self._model, self._store = server, card["id"], store
        self._running: dict[str, ServedReading] = {}

    # -- requests ---------------------------------------------------------------------------------------------------

    def sampling(self, max_tokens: int, extra: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
        """What it does not take is told when it is asked."""
        told = {name: value for name, value in settings.items() if value is not None}
        bias = {str(token): value for token, value in (settings.get("logit_bias") or {}).items()}
        return {
            "max_tokens": max_tokens,
            "temperature": 0.0,
            **told,
            **({"logit_bias": bias} if bias else {}),
            **(extra or {}),
            "ignore_eos": True,  # ours are among the stop tokens
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }

    def submit(self, ids: Sequence[int], params: dict[str, Any], deliver: Deliver, salt: str | None = None) -> str:
        self.check_tokens(ids)
        self.check_length(len(ids) + int(params["max_tokens"]))
        name = uuid.uuid4().hex
        transfer = named(params["kv_transfer_params"], name)
        body = {**params, "model": self._model, "prompt": list(ids), "kv_transfer_params": transfer}
        body |= {"cache_salt": salt} if salt else {}
        wanted = AskedAnswer(self.spec.vocabulary, int(params["max_tokens"]), params.get("logprobs") is not None)
        self._running[name] = reading = ServedReading(self._server.stream(body))
        reader = threading.Thread(target=self._read, args=(name, reading, wanted, deliver), name="ragcache-served")
        reader.daemon = True
        reader.start()
        return name

    def _read(self, name: str, reading: ServedReading, wanted: AskedAnswer, deliver: Deliver) -> None:
        """Whether anybody reads the answer or not."""
        reason: str | None = None
        last: ServedOutput | None = None
        broken: RagcacheError | None = None
        try:
            with closing(reading.asked):
                for piece in wanted.pieces(reading.asked.send().events()):
                    reason = piece.finish_reason or reason
                    if piece.token_ids:
                        deliver(ServedOutput((ServedPiece(piece.token_ids, piece.logprobs),)))
            last = ServedOutput((ServedPiece(finish_reason=reason),), True, self._report(name))
        except FAULTS as error:
            broken = error if isinstance(error, RagcacheError) else None
            if name in self._running:  # else somebody hung up
                logger.warning("an answer of the vLLM server ended amid it", exc_info=True)
        finally:
            deliver(last or broken)
            reading.last.set_result(last)
            self._running.pop(name, None)

    def _report(self, name: str) -> dict[str, Any]:
        """A stream has no place for it. It is told once."""
        body = self.sampling(1, {"kv_transfer_params": report_params(name)})
        body |= {"model": self._model, "prompt": [0]}
        try:
            told = self._server.complete(body, REPORT_S).get("kv_transfer_params")
        except RagcacheError:
            logger.warning("the vLLM server tells no report of an answer", exc_info=True)
            return {KEY: {"incidents": [UNTOLD]}}
        return told if isinstance(told, dict) else {}

    def abort(self, request: str) -> dict[str, Any]:
        """vLLM aborts what nobody listens to, and tells what it linked all the same."""
        if (reading := self._running.pop(request, None)) is None:
            return {}
        reading.asked.hang_up()
        last = reading.last.result()
        if last is not None:
            return last.kv_transfer_params
        return self._report(request) if reading.asked.answer is not None else {}

    def forsake(self, request: str, tell: Callable[[dict[str, Any]], None] = lambda told: None) -> dict[str, Any]:
        """What it linked is not told then."""
        reading = self._running.pop(request, None)
        tell({})  # before its reader delivers that it was hung up
        if reading is not None:
            reading.asked.hang_up()
        return {}

    # -- an engine --------------------------------------------------------------------------------------------------

    def _capture(self, before: Sequence[Variant], segment: Segment, key: VariantKey, pause: Pause | None) -> Variant:
        """It stores what it captures, so the variants before are there by their keys."""
        if pause is not None:
            pause()
        segments = segments_of(before, segment)
        ids = [token for one in segments for token in one.ids]
        self.check_length(len(ids) + 1)
        asked = capture_params(segments, [*(variant.key for variant in before), key])
        body = self.sampling(1, {"kv_transfer_params": asked})
        told = self._server.complete({**body, "model": self._model, "prompt": ids}).get("kv_transfer_params")
        try:
            found = self._store.get(key)
        except StoreError as error:
            raise ModelError(f"what the vLLM server has captured cannot be read: {error}") from error
        if found is None:
            report = told.get(KEY) if isinstance(told, dict) else None
            incidents = report.get("incidents") if isinstance(report, dict) else None
            raise ModelError("; ".join(map(str, incidents)) if incidents else ELSEWHERE)
        return found.variant

    def close(self) -> None:
        for request in tuple(self._running):
            self.forsake(request)
        self._store.close()


def _spec(folder: Path, dtype: torch.dtype, most: int, digests: Digests) -> EngineSpec:
    """Of the model in a folder, without loading it. Raises ModelError."""
    from transformers import AutoConfig, GenerationConfig

    whole = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    config, eos = whole.get_text_config(), None
    with suppress(OSError, ValueError):
        eos = GenerationConfig.from_pretrained(str(folder), local_files_only=True).eos_token_id
    heads = int(config.num_attention_heads)
    return EngineSpec(
        fingerprint=folder_fingerprint(folder, dtype, digests),
        layers=int(config.num_hidden_layers),
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
        dtype=dtype,
        device=torch.device("cpu"),
        max_tokens=most,
        vocabulary=int(config.vocab_size),
        eos=end_tokens(config.eos_token_id if eos is None else eos),
    )
