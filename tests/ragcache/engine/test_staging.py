"""KV on its way to a GPU: cut, copied and put together as it was. `make gpu` checks it on one."""

from __future__ import annotations

import itertools

import pytest
import torch

from ragcache.engine import staging
from ragcache.engine.staging import LEAST_BYTES, Stage, joined
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


def test_small_parts_take_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """K and V of a chunk that fits into one half: while one is sent, the other is filled."""
    halves: list[int] = []

    class Told(OrdinaryHalf):
        def send(self, part: torch.Tensor, place: torch.Tensor) -> None:
            halves.append(id(self))
            super().send(part, place)

    monkeypatch.setattr(staging, "_Half", Told)
    monkeypatch.setattr(staging, "LEAST_BYTES", 0)
    stage = Stage(CPU, 1 << 20)
    for part in (*drawn(2), *drawn(1)):
        assert torch.equal(stage._sent(part), part)
    assert len(halves) == 4 and len(set(halves)) == 2
    assert all(one != other for one, other in itertools.pairwise(halves))


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


@pytest.mark.parametrize("layers", [1, 2, 7])
def test_k_and_v_that_lie_side_by_side_are_one(layers: int) -> None:
    k, v = drawn(layers)
    both = joined(k, v)
    assert both is not None
    assert both.is_contiguous()
    assert torch.equal(both[:, 0], k)
    assert torch.equal(both[:, 1], v)
    _, beside = drawn(layers)
    padded = torch.randn(layers, 2, 4, 101, 16)[:, :, :, :100]
    for one, two in ((k, beside), (v, k), (k, k), (k, v.clone()), (padded[:, 0], padded[:, 1]), (k[:, :2], v[:, :2])):
        assert joined(one, two) is None


def test_every_second_layer_is_not_one_run() -> None:
    k, v = drawn(4)
    assert joined(k[::2], v[::2]) is None
    part = joined(k[1:3], v[1:3])
    assert part is not None
    assert torch.equal(part[:, 1], v[1:3])
