"""A prompt in the torch engine's buffer: chunks placed, some rows still to compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from ragcache.engine.torch.attention import QuestionSum, RowBlock, attend, read_attention, reduced, row_blocks
from ragcache.engine.torch.decoder import KVBuffer, Tap
from ragcache.engine.torch.forward import TorchForward
from ragcache.errors import ConfigError
from ragcache.linking.base import LinkedPrompt, PlacedChunk, Positions, Reduction, read_layers, union
from ragcache.linking.focus import FocusWatch
from ragcache.policy import Work
from ragcache.types import FloatArray


class TorchLinkedPrompt(LinkedPrompt):
    """What linkers measure on, and the repair itself. Used once, by one thread."""

    def __init__(
        self,
        engine: TorchForward,
        buffer: KVBuffer,
        ids: tuple[int, ...],
        question: int,
        chunks: list[PlacedChunk],
        missing: Positions,
    ):
        """`missing`: ascending positions before the question that nothing was placed at."""
        self.ids, self.question, self.chunks = ids, question, chunks
        self.charged = 0.0  # token passes of the measurements, in tokens through all layers
        self._engine, self._buffer = engine, buffer
        self._missing = missing
        self.work = Work()  # that has been done for it
        # Hidden states after so many layers: of the question's tokens but the last, and of all before the question.
        self._paused: tuple[torch.Tensor, int] | None = None
        self._stopped: tuple[torch.Tensor, int] | None = None

    def question_attention(self, reduction: Reduction, depth: float = 1.0) -> FloatArray:
        """What is missing is left out: to the question it is tokens that say nothing, since computing them for it would
        cost a prompt with little cached a fifth of a prefill. Where nothing is, `finish` goes on with a pass that stops
        early, for the question's tokens but the last, which the answer starts from.
        """
        question, total = range(self.question, len(self.ids)), self._engine.spec.layers
        read = read_layers(depth, total)
        layers = read.stop
        self._buffer.blank(self._missing, layers)
        tap = QuestionTap(question, self.question, read, self._engine)
        hidden = self._forward(question, range(layers), tap)
        if layers == total or len(self._missing):
            self.charged += len(question) * layers / total
        else:
            self.charged += layers / total
            self._paused = (hidden[:-1], layers)
        attention = reduced(tap.read.mean(len(read)), reduction)
        return np.asarray(attention.cpu().numpy(), dtype=np.float32)

    def deviation(self, layers: int) -> FloatArray:
        if layers > self._engine.spec.layers:
            raise ConfigError(f"{layers} layers are to be recomputed in full, the model has {self._engine.spec.layers}")
        tap = DeviationTap(self._buffer, layers - 1)
        hidden = self._forward(range(self.question), range(layers), tap)
        self.charged += self.question * layers / self._engine.spec.layers
        self._stopped = (hidden, layers)
        return tap.squared()

    def finish(self, selected: Positions, focus: int = 0) -> torch.Tensor:
        """Recompute the selected positions and what is missing, and compute the question. `focus`: see Linker.

        -> hidden of the prompt's last token [1, hidden].
        """
        repaired = np.union1d(selected, self._missing)
        if focus and len(selected):
            return self._focused(repaired, focus)
        if self._stopped is not None:
            return self._resume(repaired)
        if self._paused is not None:
            return self._go_on(repaired)
        rows = [*repaired.tolist(), *range(self.question, len(self.ids))]
        return self._forward(rows, range(self._engine.spec.layers))[-1:]

    def _go_on(self, repaired: Positions) -> torch.Tensor:
        """After a probe: the rows that it left out through its layers, then all through the rest."""
        assert self._paused is not None
        paused, done = self._paused
        rows, last = repaired.tolist(), len(self.ids) - 1
        early = self._forward([*rows, last], range(done))
        hidden = torch.cat((early[:-1], paused, early[-1:]))
        positions = torch.tensor([*rows, *range(self.question, last + 1)], device=self._engine.spec.device)
        return self._through(hidden, positions, range(done, self._engine.spec.layers))[-1:]

    def _focused(self, repaired: Positions, window: int) -> torch.Tensor:
        """Layer by layer, until it is seen which chunks the question reads; the others' rows end there, and keep what
        was placed in the layers above.
        """
        total, device = self._engine.spec.layers, self._engine.spec.device
        rows = np.concatenate((repaired, np.arange(self.question, len(self.ids))))
        tap, watch = QuestionTap(rows.tolist(), self.question, range(total), self._engine), FocusWatch(window)
        hidden: torch.Tensor = self._engine.decoder.embed(torch.tensor([self.ids[row] for row in rows], device=device))
        positions, layer, focused = torch.tensor(rows, device=device), 0, None
        while layer < total and focused is None:
            hidden = self._through(hidden, positions, range(layer, layer + 1), tap)
            layer += 1
            focused = watch.see(self._read_of_chunks(tap))
        if focused is None or layer == total:
            return hidden[-1:]
        ended = union(np.arange(one.start, one.end) for at, one in enumerate(self.chunks) if at not in focused)
        kept = np.isin(rows, np.setdiff1d(ended, self._missing), invert=True)
        self.charged -= int((~kept).sum()) * (total - layer) / total
        left = torch.from_numpy(np.flatnonzero(kept)).to(device)
        return self._through(hidden[left], positions[left], range(layer, total))[-1:]

    def _read_of_chunks(self, tap: QuestionTap) -> npt.NDArray[np.float64]:
        """By the question, in all layers so far."""
        read = tap.read.total.sum(0).double().cpu().numpy()
        return np.asarray([read[one.start : one.end].sum() for one in self.chunks])

    def _resume(self, repaired: Positions) -> torch.Tensor:
        """CacheBlend's pass: the first layers are done for all tokens, the repaired ones go on with the question."""
        assert self._stopped is not None
        hidden, done = self._stopped
        question = range(self.question, len(self.ids))
        through = self._forward(question, range(done))
        self.charged -= len(repaired) * done / self._engine.spec.layers  # those layers are charged already
        rows = torch.cat((hidden[torch.from_numpy(repaired)], through))
        positions = torch.tensor([*repaired.tolist(), *question], device=self._engine.spec.device)
        return self._through(rows, positions, range(done, self._engine.spec.layers))[-1:]

    def _forward(self, rows: Sequence[int], layers: range, tap: Tap | None = None) -> torch.Tensor:
        device = self._engine.spec.device
        ids = torch.tensor([self.ids[row] for row in rows], device=device)
        hidden = self._engine.decoder.embed(ids)
        return self._through(hidden, torch.tensor(rows, device=device), layers, tap)

    def _through(
        self, hidden: torch.Tensor, positions: torch.Tensor, layers: range, tap: Tap | None = None
    ) -> torch.Tensor:
        rows = Work(1, len(hidden), int(positions.sum()) + len(hidden))
        self.work += rows * (len(layers) / self._engine.spec.layers)
        return self._engine.forward(hidden, positions, self._buffer, layers=layers, tap=tap)


class QuestionTap(Tap):
    """Sums what the question's rows, the last of a pass, read before it."""

    def __init__(self, rows: Sequence[int], question: int, layers: range, engine: TorchForward):
        """Rows that are not read go through the pass as well. `layers`: those that count."""
        self.read = QuestionSum(rows, question, engine.spec.device)
        self._positions = torch.tensor(rows, device=engine.spec.device)
        self._layers, self._engine = layers, engine
        self._others: list[RowBlock] | None = None  # of the one turn that has rows of both kinds

    def attend(self, layer: int, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor | None:
        turn = self._positions[self.first : self.first + q.shape[1]]
        others = max(0, self.read.first - self.first)
        if layer not in self._layers or others >= len(turn):
            return None
        parts, scale = [], self._engine.decoder.scale
        if others:
            if self._others is None:
                self._others = row_blocks(turn[:others], self._engine.spec.dtype)
            parts.append(attend(q[:, :others], keys, values, self._others, scale))
        for read in read_attention(q[:, others:], keys, turn[others:], scale, values):
            self.read.add(self.first + others, read)
            assert read.attended is not None
            parts.append(read.attended)
        return torch.cat(parts)


class DeviationTap(Tap):
    """Squared difference of placed and fresh KV at one layer, per row."""

    def __init__(self, buffer: KVBuffer, layer: int):
        self._buffer, self._layer = buffer, layer
        self._parts: list[torch.Tensor] = []  # one per turn

    def kv(self, layer: int, k: torch.Tensor, rotated: torch.Tensor, v: torch.Tensor) -> None:
        if layer != self._layer:
            return
        rows = slice(self.first, self.first + v.shape[1])
        change = (rotated.float() - self._buffer.k[layer, :, rows].float()).pow(2).sum((0, 2))
        change += (v.float() - self._buffer.v[layer, :, rows].float()).pow(2).sum((0, 2))
        self._parts.append(change)

    def squared(self) -> FloatArray:
        return np.asarray(torch.cat(self._parts).cpu().numpy(), dtype=np.float32)
