"""The torch engine: ids and positions in, KV and logits out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from ragcache.address import lineage_of
from ragcache.engine import Engine, EngineSpec, Forecast, LinkSource, PromptRequest, end_tokens
from ragcache.engine.fingerprint import Digests, digest_folder, digest_tensors, fingerprint, unchanged
from ragcache.engine.resources import FreeCores, Memory
from ragcache.engine.staging import Stage
from ragcache.engine.torch.attention import APART, read_attention
from ragcache.engine.torch.blueprint import read_blueprint, write_blueprint
from ragcache.engine.torch.decoder import Decoder, KVBuffer, Tap
from ragcache.engine.torch.generation import TorchGeneration, forecast, prefill_together
from ragcache.engine.torch.prefix import prefix_blocks
from ragcache.errors import ConfigError
from ragcache.keeping import Pause
from ragcache.linking.base import Linker
from ragcache.linking.cacheblend import CacheBlend
from ragcache.loader import Block
from ragcache.planning import Plan
from ragcache.profile import ProfileBuilder
from ragcache.records import Records
from ragcache.report import Report
from ragcache.types import Segment, Variant, VariantKey

if TYPE_CHECKING:  # importing it takes seconds, and a known model can do without (blueprint.py)
    import transformers

PREFILL_ROWS = 512  # rows per forward: bounds activations and masks, large enough for full matmul speed
CUDA_ROWS = 2048  # the same on a GPU, which more rows keep busy, and where a prefill has no masks


class TorchEngine(Engine):
    """Weights, and memory to use again: safe to share between threads, each with its own buffer."""

    name = "torch"

    def __init__(self, decoder: Decoder, spec: EngineSpec, stock: Callable[[], transformers.PreTrainedModel]):
        self.decoder = decoder
        self.spec = spec
        self.stock = stock  # gives what the self-check compares with
        self._memory = Memory()
        self._cores = FreeCores()
        self._stage = Stage(spec.device)

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        dtype: torch.dtype,
        device: torch.device,
        records: Records | None = None,
        remembered: Digests | None = None,
    ) -> TorchEngine:
        """With records, a model that was loaded before is built without transformers, and checked no more.

        Raises ModelError.
        """

        def stock() -> transformers.PreTrainedModel:
            from ragcache.engine.torch.loading import load_pretrained

            return load_pretrained(folder, dtype, device)

        basis = records.basis(folder) if records else None
        with unchanged(folder):
            known = read_blueprint(records, folder, dtype, device) if records else None
            if known is not None:
                return cls(*known, stock)
            weights, tokenizer = digest_folder(folder, remembered)
            model = stock()
        engine = cls._of(model, weights, tokenizer)
        if records is not None:
            write_blueprint(records, folder, basis, model, engine.decoder, engine.spec)
        return engine

    @classmethod
    def from_model(cls, model: transformers.PreTrainedModel) -> TorchEngine:
        """A model in memory, such as a small random one."""
        return cls._of(model.eval(), _digest_model(model))

    @classmethod
    def _of(cls, model: transformers.PreTrainedModel, weights: str, tokenizer: str = "") -> TorchEngine:
        from ragcache.engine.torch.loading import build_decoder

        decoder = build_decoder(model)  # it shares every weight with the model
        config = model.config
        spec = EngineSpec(
            fingerprint=fingerprint(config.to_dict(), model.dtype, weights, tokenizer),
            layers=len(decoder.layers),
            kv_heads=decoder.kv_heads,
            head_dim=decoder.dim,
            dtype=model.dtype,
            device=next(model.parameters()).device,
            max_tokens=int(config.max_position_embeddings),
            vocabulary=int(config.vocab_size),
            eos=_eos(model),
        )
        return cls(decoder, spec, lambda: model)

    def _capture(self, before: Sequence[Variant], segment: Segment, key: VariantKey, pause: Pause | None) -> Variant:
        lengths = [len(variant) for variant in before]
        start = sum(lengths)
        buffer = self.buffer(start + len(segment), apart=pause is not None)
        place = 0
        for variant in before:
            self.place(buffer, variant, place)
            place += len(variant)
        positions = range(start, start + len(segment))
        tap = CaptureTap(self.spec, self.decoder.scale, lengths, positions)
        self.compute_patiently(segment.ids, positions, buffer, tap, pause)
        lineage = lineage_of(len(segment), [(variant.key, variant.lineage) for variant in before])
        return Variant(key, segment.ids, tap.k, tap.v, tap.profile.build(), lineage)

    @torch.inference_mode()
    def compute_patiently(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        buffer: KVBuffer,
        tap: Tap | None = None,
        pause: Pause | None = None,
    ) -> None:
        """A turn of rows in one layer at a time if it can wait, so that whoever waits for an answer waits no longer for
        it than that.
        """
        if pause is None:
            self.compute(ids, positions, buffer, tap=tap)
            return
        places, tokens = (torch.tensor(of, device=self.spec.device) for of in (positions, ids))
        for turn in self._turns(places):
            hidden = self.decoder.embed(tokens[turn])
            for layer in range(self.spec.layers):
                pause()
                hidden = self._turn(hidden, places, turn, buffer, range(layer, layer + 1), tap)

    def check_linker(self, linker: Linker) -> None:
        if isinstance(linker, CacheBlend) and linker.full_layers > self.spec.layers:
            told = f"full_layers={linker.full_layers} is more than the {self.spec.layers} of the model"
            raise ConfigError(f"linker {linker.name!r}: {told}: choose fewer, or another linker")

    def answer(
        self, prompt: PromptRequest, source: LinkSource, finish: Callable[[Report], None] | None
    ) -> TorchGeneration:
        started = perf_counter()
        with source.answering():
            prefilled = prefill_together(self, prompt, source)
        return TorchGeneration(self, prompt, prefilled, source, started, finish)

    def forecast(self, prompt: PromptRequest, source: LinkSource) -> Forecast:
        return forecast(self, prompt, source)

    def keep_prefix(
        self, prompt: PromptRequest, source: LinkSource, plan: Plan, answer: Sequence[int], report: Report
    ) -> None:
        """After an answer, for prompts that begin alike."""
        if source.prefixes is not None:
            compute = partial(prefix_blocks, self, source)
            source.prefixes.answered(plan, prompt.segments, answer, report, compute, prompt.era)

    def buffer(self, capacity: int, apart: bool = False) -> KVBuffer:
        """`apart` from the memory that one prompt after the other takes: for what holds on while they are answered.
        Raises PromptError when the model's context is shorter.
        """
        self.check_length(capacity)
        spec = self.spec
        shape = (2, spec.layers, spec.kv_heads, capacity, spec.head_dim)
        memory = Memory() if apart else self._memory
        return KVBuffer(memory.take(shape, spec.dtype, spec.device))

    def place(self, buffer: KVBuffer, variant: Variant, start: int) -> None:
        self.place_block(buffer, Block.whole(variant, start))

    def place_block(self, buffer: KVBuffer, block: Block) -> None:
        with self._cores.lent():
            buffer.place(self._stage.brought(block), self.decoder.rope)

    @torch.inference_mode()
    def compute(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        buffer: KVBuffer,
        *,
        keep: int = 1,
        tap: Tap | None = None,
    ) -> torch.Tensor:
        """Run the tokens at ascending positions through all layers -> hidden of the last `keep` [keep, hidden]."""
        device = self.spec.device
        hidden = self.decoder.embed(torch.tensor(ids, device=device))
        return self.forward(hidden, torch.tensor(positions, device=device), buffer, tap=tap)[-keep:]

    @torch.inference_mode()
    def forward(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        buffer: KVBuffer,
        *,
        layers: range | None = None,
        tap: Tap | None = None,
    ) -> torch.Tensor:
        """Rows through some of the layers (all, by default) -> hidden [n, hidden].

        Rows beyond PREFILL_ROWS go in turns, which is exact: a row attends only to positions before it.
        """
        layers = range(self.spec.layers) if layers is None else layers
        turns = self._turns(positions)
        return torch.cat([self._turn(hidden[turn], positions, turn, buffer, layers, tap) for turn in turns])

    def _turns(self, positions: torch.Tensor) -> Iterator[slice]:
        size, count = CUDA_ROWS if positions.is_cuda else PREFILL_ROWS, len(positions)
        # Turns begin where blocks of rows do: the first is longer, so that there are no more of them.
        late = 0 if positions.is_cuda or count <= size else -int(positions[0]) % APART
        for begin in range(late, max(count, late + 1), size):
            yield slice(begin if begin > late else 0, begin + size)

    def _turn(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        turn: slice,
        buffer: KVBuffer,
        layers: range,
        tap: Tap | None,
    ) -> torch.Tensor:
        """`hidden` of these of the rows."""
        if tap is not None:
            tap.first = turn.start
        with self._cores.lent():
            return self.decoder.forward(hidden, positions[turn], buffer, layers, tap)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [n, hidden] -> float32 [n, vocabulary]."""
        with self._cores.lent():
            return self.decoder.logits(hidden)

    def synchronize(self) -> None:
        """Wait until what was asked for is computed: an accelerator runs behind."""
        if self.spec.device.type == "cuda":
            torch.cuda.synchronize(self.spec.device)


def _digest_model(model: transformers.PreTrainedModel) -> str:
    """Beside the weights also what a program may have changed in memory: RoPE's frequencies, scales, modules."""
    scales = [(name, part.scaling) for name, part in model.named_modules() if hasattr(part, "scaling")]
    tensors = {**model.state_dict(), **dict(model.named_buffers())}
    return digest_tensors(tensors.items()) + hashlib.sha256(f"{model}{scales}".encode()).hexdigest()


def _eos(model: transformers.PreTrainedModel) -> frozenset[int]:
    """All ids that end an answer, from the generation config where there is one."""
    generation = getattr(model, "generation_config", None)
    found = getattr(generation, "eos_token_id", None)
    return end_tokens(model.config.eos_token_id if found is None else found)


class CaptureTap(Tap):
    """Keeps the rows' K before rotation and V, and attends by explicit weights, from which the profile is summed.

    The weights serve both the output and the profile, so profiling costs little more than attention itself.
    """

    def __init__(self, spec: EngineSpec, scale: float, lengths: Sequence[int], positions: range):
        shape = (spec.layers, spec.kv_heads, len(positions), spec.head_dim)
        self.k = torch.empty(shape, dtype=spec.dtype, device=spec.device)
        self.v = torch.empty(shape, dtype=spec.dtype, device=spec.device)
        self.profile = ProfileBuilder(lengths or (0,), len(positions), spec.layers)
        self._positions = torch.arange(positions.start, positions.stop, device=spec.device)
        self._scale = scale

    def kv(self, layer: int, k: torch.Tensor, rotated: torch.Tensor, v: torch.Tensor) -> None:
        rows = self._turn(v.shape[1])
        self.k[layer, :, rows], self.v[layer, :, rows] = k, v

    def attend(self, layer: int, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        parts = []
        for read in read_attention(q, keys, self._positions[self._turn(q.shape[1])], self._scale, values):
            self.profile.add(read.mean[None], self.first + read.start)
            assert read.attended is not None
            parts.append(read.attended)
        return torch.cat(parts)

    def _turn(self, rows: int) -> slice:
        return slice(self.first, self.first + rows)
