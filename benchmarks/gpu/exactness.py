"""Where reuse must be exact, is it on this device? Small random models, each case against a full forward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from benchmarks.caches import prefill_prompt
from benchmarks.gpu import GpuBenchOptions
from benchmarks.gpu.shapes import MODELS, RandomIds, random_engine
from benchmarks.output import Row
from ragcache.cache import ChunkCache
from ragcache.engine.staging import Stage
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ModelError
from ragcache.loader import Block
from ragcache.report import FULL
from ragcache.store import open_store
from ragcache.store.memory import room
from ragcache.types import Chunk, Segment, System

FAMILIES = {"Llama": {}, "Qwen2": {}, "Qwen3": {}, "Mistral": {"sliding_window": None}}
SIZES = {
    "vocab_size": 199, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1024,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
# Of the largest logit: what rounding alone may do.
ALLOWED = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
CONTEXT = 2  # chunks
READ = 24  # chunks, one behind the other
STAGED = (32, 2, 8, 200, 128)  # K and V of the layers of a chunk
QUESTION = 40  # tokens: more than one block of rows, so that they are a run behind others (attention.py)
KNOWN = "behind their own context"
Forward = Callable[[Sequence[int]], torch.Tensor]  # ids -> logits of the last one
# An engine, with what its logits are compared with: stock transformers, or else our own forward in one piece.
Load = Callable[[], tuple[TorchEngine, Forward]]  # raises ModelError


def measure(part: str, options: GpuBenchOptions) -> Iterator[tuple[str, list[Row]]]:
    device, seed, rows = torch.device(options.device), options.seed, list[Row]()
    for dtype in ALLOWED:
        for staged in (_staged, _read):
            rows.append(
                {"model": "any", "dtype": str(dtype).removeprefix("torch.")} | dict(staged(device, dtype, seed))
            )
        for name, load in _models(device, dtype, seed):
            common = {"model": name, "dtype": str(dtype).removeprefix("torch.")}
            rows += [common | dict(row) for row in _checked(load, dtype, seed)]
        yield part, rows


def _staged(device: torch.device, dtype: torch.dtype, seed: int) -> Row:
    """More than both halves of the stage hold, as a codec leaves it, and again into memory that has been used."""
    rows = torch.randn(STAGED, generator=torch.Generator().manual_seed(seed)).to(dtype)
    stage, parts, block = Stage(device), [rows[:, 0], rows[:, 1]], Block(0, 0, rows[:, 0], rows[:, 1])
    sent = [stage.brought(block) for _ in range(3)]
    same = all(torch.equal(of.cpu(), part) for one in sent for of, part in zip((one.k, one.v), parts, strict=True))
    return judged("sent to the device", dtype, 0.0 if same else math.inf)


def _read(device: torch.device, dtype: torch.dtype, seed: int) -> Row:
    """Memory that files are read into, lent again as soon as nobody holds it: it may be on its way yet."""
    rows = torch.randn(STAGED, generator=torch.Generator().manual_seed(seed)).to(dtype)
    stage, sent = Stage(device), list[Block]()
    for turn in range(READ):
        memory = torch.frombuffer(room(rows.nbytes), dtype=dtype).view(rows.shape).copy_(rows * turn)
        sent.append(stage.brought(Block(0, 0, memory[:, 0], memory[:, 1])))
        del memory
    same = all(torch.equal(torch.stack((block.k, block.v), 1).cpu(), rows * turn) for turn, block in enumerate(sent))
    return judged("read and sent to the device", dtype, 0.0 if same else math.inf)


def _models(device: torch.device, dtype: torch.dtype, seed: int) -> Iterator[tuple[str, Load]]:
    if find_spec("transformers") is None:
        yield "Llama, against our own forward", partial(_own_engine, device, dtype, seed)
        return
    for family, more in FAMILIES.items():
        yield family, partial(_stock_engine, _stock_model(family, more, device, dtype, seed))


def _own_engine(device: torch.device, dtype: torch.dtype, seed: int) -> tuple[TorchEngine, Forward]:
    engine = random_engine(MODELS["tiny"], device, dtype, seed)
    return engine, partial(full_forward, engine)


def _stock_engine(model: Any) -> tuple[TorchEngine, Forward]:
    return TorchEngine.from_model(model), partial(_theirs, model)


def _stock_model(family: str, more: dict[str, Any], device: torch.device, dtype: torch.dtype, seed: int) -> Any:
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**SIZES, **more, initializer_range=0.05)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    frequencies = model.model.rotary_emb.inv_freq.clone()
    model.to(device=device, dtype=dtype)
    model.model.rotary_emb.inv_freq = frequencies.to(device)  # as a folder is read: these stay in float32
    return model


@torch.inference_mode()
def _theirs(model: Any, ids: Sequence[int]) -> torch.Tensor:
    logits: torch.Tensor = model(torch.tensor([list(ids)], device=model.device)).logits[0, -1]
    return logits.float()


def full_forward(engine: TorchEngine, ids: Sequence[int]) -> torch.Tensor:
    return engine.logits(engine.compute(ids, range(len(ids)), engine.buffer(len(ids))))[0]


def _checked(load: Load, dtype: torch.dtype, seed: int) -> Iterator[Row]:
    try:
        engine, forward = load()
    except ModelError as error:  # its first comparison with transformers
        yield judged("loading", dtype, None, str(error))
    else:
        yield from _compared(engine, forward, seed)


@dataclass(frozen=True)
class Exact:
    """Prompts whose answer over what is cached must be that of a full forward."""

    system: System
    document: list[Chunk]  # to be captured
    cases: dict[str, tuple[str, list[Segment]]]  # by what is checked: the linker, and the prompt

    @classmethod
    def drawn(cls, vocabulary: int, seed: int) -> Exact:
        ids = RandomIds(vocabulary, seed)
        system, question, document = ids.system(9), ids.question(QUESTION), ids.chunks(240, 40)
        mixed = [system, *(document[place] for place in (3, 0, 5, 1)), question]
        cases: dict[str, tuple[str, list[Segment]]] = {
            "a plain prefill": (FULL, mixed),
            KNOWN: ("naive", [system, *document[: CONTEXT + 1], question]),
            "all repaired, by the question": ("query:ratio=1", mixed),
            "all repaired, by auto": ("auto:ratio=1", mixed),
        }
        return cls(system, document, cases)


def _compared(engine: TorchEngine, forward: Forward, seed: int) -> Iterator[Row]:
    exact = Exact.drawn(engine.spec.vocabulary, seed)
    cache = ChunkCache(engine, open_store(codec="raw"), "naive", context_chunks=CONTEXT, keep_missed=False)
    list(cache.ingest(exact.system, exact.document))
    for case, (linker, segments) in exact.cases.items():
        yield _row(case, engine, prefill_prompt(cache, segments, linker).logits, forward, segments)
    # The answer's tokens one by one, over KV that was linked.
    _, segments = exact.cases[KNOWN]
    answer = list(cache.generate(segments, max_tokens=8))
    ids = [token for segment in segments for token in segment.ids] + answer[:-1]
    wanted = forward(ids)
    error = float((wanted.max() - wanted[answer[-1]]) / wanted.abs().max())
    yield judged("an answer's eighth token", engine.spec.dtype, error)


def _row(case: str, engine: TorchEngine, logits: torch.Tensor, forward: Forward, segments: Sequence[Segment]) -> Row:
    wanted = forward([token for segment in segments for token in segment.ids])
    return judged(case, engine.spec.dtype, float((logits.float() - wanted).abs().max() / wanted.abs().max()))


def judged(case: str, dtype: torch.dtype, error: float | None, reason: str | None = None) -> Row:
    """No error (there are no logits, for that reason), nan and inf are not exact."""
    allowed = ALLOWED[dtype]
    exact = error is not None and math.isfinite(error) and error <= allowed
    told = {"error": error, "allowed": allowed, "exact": "yes" if exact else "NO", "reason": reason}
    return {"case": case, **told}
