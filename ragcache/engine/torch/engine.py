"""The torch engine: ids and positions in, KV and logits out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from ragcache.address import lineage_of
from ragcache.engine import EngineSpec, Forecast, LinkSource, PromptRequest, end_tokens
from ragcache.engine.fingerprint import Digests, digest_folder, digest_tensors, fingerprint, unchanged
from ragcache.engine.torch.attention import read_attention
from ragcache.engine.torch.blueprint import read_blueprint, write_blueprint
from ragcache.engine.torch.decoder import Decoder, Tap
from ragcache.engine.torch.forward import TorchForward
from ragcache.engine.torch.generation import TorchGeneration, forecast, prefill_together
from ragcache.errors import ConfigError
from ragcache.keeping import Pause
from ragcache.linking.base import Linker
from ragcache.linking.cacheblend import CacheBlend
from ragcache.profile import ProfileBuilder
from ragcache.records import Records
from ragcache.report import Report
from ragcache.types import Segment, Variant, VariantKey

if TYPE_CHECKING:  # importing it takes seconds, and a known model can do without (blueprint.py)
    import transformers


class TorchEngine(TorchForward):
    """Captures segments and answers prompts."""

    name = "torch"

    def __init__(self, decoder: Decoder, spec: EngineSpec, stock: Callable[[], transformers.PreTrainedModel]):
        super().__init__(decoder, spec)
        self.stock = stock  # gives what the self-check compares with

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
