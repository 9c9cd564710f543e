"""Where reuse must be exact inside vLLM, is it on this device? A small random model, each case against a full forward
of the torch engine. vLLM's own start compares its passes with ours layer by layer, and refuses a model that differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from benchmarks.gpu import GpuBenchOptions
from benchmarks.gpu.exactness import CONTEXT, QUESTION, judged
from benchmarks.gpu.shapes import MODELS, RandomIds
from benchmarks.gpu.vllm import distributions, model_folder, open_vllm, use
from benchmarks.output import Row
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ModelError
from ragcache.report import FULL
from ragcache.store import open_store
from ragcache.types import Segment

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
    drawn = RandomIds(engine.spec.vocabulary, seed)
    system, question, document = drawn.system(9), drawn.question(QUESTION), drawn.chunks(240, 40)
    cache = use(engine, open_store(codec="raw"), CONTEXT)
    list(cache.ingest(system, document))
    known, mixed = document[: CONTEXT + 1], [document[place] for place in (3, 0, 5, 1)]
    cases: dict[str, tuple[str, Sequence[Segment]]] = {
        "a plain prefill": (FULL, mixed),
        "behind their own context": ("naive", known),
        "all repaired, by the question": ("query:ratio=1", mixed),
        "all repaired, by auto": ("auto:ratio=1", mixed),
    }
    for case, (linker, chunks) in cases.items():
        ids, told = distributions(engine, [system, *chunks, question], linker, STEPS)
        given = [token for segment in (system, *chunks, question) for token in segment.ids]
        errors = [_error(told[step], _forward(plain, [*given, *ids[:step]])) for step in (0, STEPS - 1)]
        for name, error in zip((case, f"{case}, the eighth token"), errors, strict=True):
            yield judged(name, engine.spec.dtype, error)


def _forward(plain: TorchEngine, ids: Sequence[int]) -> torch.Tensor:
    return plain.logits(plain.compute(ids, range(len(ids)), plain.buffer(len(ids))))[0].float().cpu()


def _error(told: torch.Tensor, logits: torch.Tensor) -> float:
    """Of what is likely at all: a logit far below tells of rounding alone."""
    wanted = logits.log_softmax(-1)
    return float((told - wanted).abs().max() / logits.abs().max())
