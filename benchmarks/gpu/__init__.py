"""What a machine with CUDA and its own torch can measure from a checkout: `make gpu`.

It needs torch, numpy, safetensors, xxhash, filelock and tqdm. transformers and faiss-gpu are used where they are there;
nothing of the application is, and no model: weights are random. Each part runs in a process of its own, so that one
which fails, runs out of its time or lacks a library leaves the others alone.

| part | what it measures |
|---|---|
| exactness | logits of small random models: ours against transformers', linked against recomputed |
| 1b, 8b | of a Llama of that shape: first tokens, linked and recomputed; capture; the bytes per second of loading |
| index | the FAISS structures on the GPU against the same in memory |
| vllm-exactness | answers of vLLM over linked chunks, against a full forward of the torch engine |
| vllm-1b, vllm-8b | first tokens inside vLLM as it starts by default, and what it answers to several clients |

What is loaded from "disk" was written just before, so it comes from the page cache: no figure here is that of a drive.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.choices import some_of
from benchmarks.options import ROUNDS, SEED, BenchOptions, option
from ragcache.errors import RagcacheError

SHAPES = ("tiny", "1b", "8b")
ENGINES = ("torch", "vllm")
VLLM = "vllm-"  # before the name of a part that runs inside it


class LeftOut(RagcacheError):
    """A part that lacks a library, which says nothing against what it would measure."""


@dataclass(frozen=True)
class GpuBenchOptions(BenchOptions):
    """What a machine with CUDA and its own torch can measure from a checkout."""

    device: str = option("cuda", "cuda; or cpu, to try out the same code.")
    shapes: tuple[str, ...] = option(
        "1b,8b", f"Of the models: {', '.join(SHAPES)}, with commas.", read=some_of(*SHAPES)
    )
    engines: tuple[str, ...] = option("torch", "torch, vllm or both, with a comma.", read=some_of(*ENGINES))
    rounds: int = option(5, ROUNDS)
    vectors: int = option(200_000, "Of the index.")
    seconds: float = option(5.0, "Of each round of requests that several send to vLLM.", least=0.1)
    seed: int = option(0, SEED)
