"""KV on its way to a GPU: cut, copied and put together as it was. `make gpu` checks it on one."""

from __future__ import annotations

import pytest
import torch

from ragcache.engine import staging
from ragcache.engine.staging import LEAST_BYTES, Stage
from ragcache.loader import Block

CPU = torch.device("cpu")


class OrdinaryHalf:
    """As the pinned one, without a GPU."""

    def __init__(self, device: torch.device, nbytes: int):
        self.memory = torch.empty(nbytes, dtype=torch.uint8)

    def send(self, part: torch.Tensor, place: torch.Tensor) -> None:
        filled = self.memory[: part.nbytes].view(part.dtype).view(part.shape)
        place.copy_(filled.copy_(part))


def drawn(layers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V as a codec leaves them: the layers of both lie by turns."""
    rows = torch.randn((layers, 2, 4, 100, 16), generator=torch.Generator().manual_seed(layers)).to(torch.bfloat16)
    return rows[:, 0], rows[:, 1]


@pytest.mark.parametrize("layers", [1, 2, 7, 32])
@pytest.mark.parametrize("half", [10_000, 12_800, 30_000, 1 << 20])
def test_what_is_sent_arrives_whole(monkeypatch: pytest.MonkeyPatch, layers: int, half: int) -> None:
    """Also where a half has no room for one layer."""
    monkeypatch.setattr(staging, "_Half", OrdinaryHalf)
    monkeypatch.setattr(staging, "LEAST_BYTES", 0)
    stage = Stage(CPU, half)
    for part in drawn(layers):
        assert torch.equal(stage._sent(part), part)


def test_a_block_that_is_there_is_not_copied() -> None:
    block = Block(3, 0, *drawn(2))
    assert Stage(CPU).brought(block) is block


def test_without_memory_to_pin_it_is_sent_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Told once. A machine without a GPU has none."""
    stage, large = Stage(CPU), torch.randn(LEAST_BYTES // 4, 2)
    assert torch.equal(stage._sent(large), large)
    assert torch.equal(stage._sent(large), large)
    assert [record.message for record in caplog.records if "ordinary memory" in record.message] == caplog.messages
    assert len(caplog.messages) == 1
