from __future__ import annotations

import pytest
import torch
from torch import nn

from app.models.folders import resolve_embedder
from app.settings import Settings
from retriever.embedder import Embedder
from retriever.packing import PackedProjection, multiplies, pack, packs


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Sequential(nn.Linear(48, 24, bias=False), nn.LayerNorm(24)))


def test_packed_layers_compute_the_same() -> None:
    model, rows = layers(), torch.randn(3, 7, 24)
    with torch.inference_mode():
        expected = model(rows)
        assert pack(model, lambda: model(rows))
        assert sum(isinstance(module, PackedProjection) for module in model.modules()) == 2
        for part in (rows, rows[:1], rows[0, :1], rows.repeat(50, 1, 1)):
            torch.testing.assert_close(model(part)[:1], expected[:1] if part.dim() == 3 else expected[0, :1])


class Curious(nn.Module):
    """Looks at the weight of its layer by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(rows, self.inner.weight)


def test_a_model_that_needs_its_weights_keeps_them() -> None:
    model, rows = Curious(), torch.randn(2, 4)
    expected = model(rows)
    assert not pack(model, lambda: model(rows))
    torch.testing.assert_close(model(rows), expected)


def test_bfloat16_is_packed_where_it_is_multiplied() -> None:
    model, rows = layers().bfloat16(), torch.randn(3, 7, 24).bfloat16()
    with torch.inference_mode():
        expected = model(rows)
        assert pack(model, lambda: model(rows)) is multiplies(torch.bfloat16)
        assert sum(isinstance(module, PackedProjection) for module in model.modules()) == 2 * multiplies(torch.bfloat16)
        torch.testing.assert_close(model(rows), expected)


@pytest.mark.parametrize("narrow", [False, True])
def test_an_older_cpu_embeds_in_float32(monkeypatch: pytest.MonkeyPatch, narrow: bool) -> None:
    """Its kernels refuse packed bfloat16."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    embedder = Embedder(resolve_embedder(Settings().embedder), narrow=narrow)
    plain = Embedder(resolve_embedder(Settings().embedder))
    assert embedder.embed_query("Where are the fuses?").tolist() == plain.embed_query("Where are the fuses?").tolist()
    assert not packs(layers().bfloat16())


def test_a_model_that_differs_afterwards_is_put_back() -> None:
    model, rows, calls = layers(), torch.randn(2, 24), iter(range(10))
    assert not pack(model, lambda: model(rows) + next(calls))
    assert not any(isinstance(module, PackedProjection) for module in model.modules())


def test_other_types_are_left_alone() -> None:
    model = layers().to(torch.float64)
    assert not pack(model, lambda: model(torch.randn(2, 24, dtype=torch.float64)))
