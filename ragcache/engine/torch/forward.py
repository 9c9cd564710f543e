"""The one forward that serves everything: rows, which are token ids at ascending positions, over a KV buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ragcache.engine import Engine, EngineSpec
from ragcache.engine.resources import FreeCores, Memory, synchronize
from ragcache.engine.staging import Stage
from ragcache.engine.torch.attention import APART
from ragcache.engine.torch.decoder import Decoder, KVBuffer, Tap
from ragcache.keeping import Pause
from ragcache.loader import Block
from ragcache.types import Variant

PREFILL_ROWS = 512  # rows per forward: bounds activations and masks, large enough for full matmul speed
CUDA_ROWS = 2048  # the same on a GPU, which more rows keep busy, and where a prefill has no masks


class TorchForward(Engine):
    """Weights, and memory to use again: safe to share between threads, each with its own buffer."""

    def __init__(self, decoder: Decoder, spec: EngineSpec):
        self.decoder = decoder
        self.spec = spec
        self._memory = Memory()
        self._cores = FreeCores()
        self._stage = Stage(spec.device)

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
        """Wait until what was asked for is computed."""
        synchronize(self.spec.device)
