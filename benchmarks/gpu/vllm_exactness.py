"""Where reuse must be exact inside vLLM, is it on this device? A small random model, each case against a full forward
of the torch engine. vLLM's own start compares its passes with ours layer by layer, and refuses a model that differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from benchmarks.gpu import GpuBenchOptions
from benchmarks.gpu.exactness import CONTEXT, Exact, full_forward, judged
from benchmarks.gpu.shapes import MODELS
from benchmarks.gpu.vllm import model_folder, open_vllm, use
from benchmarks.output import Row
from benchmarks.vllm_requests import distributions
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ModelError
from ragcache.store import open_store

if TYPE_CHECKING:  # vLLM is not everywhere
    from ragcache.engine.vllm.engine import VllmEngine

SHAPE = MODELS["tiny"]
STEPS = 8  # of an answer
KV_BYTES = 64_000_000
# As vLLM is started: compiling takes a minute and more on a GPU, so it comes last.
STARTS = ((torch.bfloat16, "uncompiled"), (torch.float32, "uncompiled"), (torch.bfloat16, "compiled"))


def measure(part: str, options: GpuBenchOptions) -> Iterator[tuple[str, list[Row]]]:
    device, seed, rows = torch.device(options.device), options.seed, list[Row]()
    for dtype, how in STARTS:
        common = {"model": f"Llama, {how}", "dtype": str(dtype).removeprefix("torch.")}
        settings = {"enforce_eager": how == "uncompiled", "kv_cache_memory_bytes": KV_BYTES}
        with model_folder(SHAPE, device, dtype, seed) as folder:
            plain = TorchEngine.from_folder(folder, dtype, device)
            try:
                with open_vllm(folder, SHAPE, dtype, "raw", **settings) as engine:
                    rows += [common | dict(row) for row in _compared(engine, plain, seed)]
            except ModelError as error:
                rows.append(common | dict(judged("loading", dtype, None, str(error))))
        yield part, rows


def _compared(engine: VllmEngine, plain: TorchEngine, seed: int) -> Iterator[Row]:
    exact = Exact.drawn(engine.spec.vocabulary, seed)
    cache = use(engine, open_store(codec="raw"), CONTEXT)
    list(cache.ingest(exact.system, exact.document))
    for case, (linker, segments) in exact.cases.items():
        engine.forget_prefixes()
        ids, told = distributions(engine, segments, linker, STEPS)
        given = [token for segment in segments for token in segment.ids]
        for name, step in ((case, 0), (f"{case}, the eighth token", STEPS - 1)):
            logits = full_forward(plain, [*given, *ids[:step]]).float().cpu()
            yield judged(name, engine.spec.dtype, _error(told[step], logits))


def _error(told: torch.Tensor, logits: torch.Tensor) -> float:
    """Of what is likely at all: a logit far below tells of rounding alone."""
    wanted = logits.log_softmax(-1)
    return float((told - wanted).abs().max() / logits.abs().max())
