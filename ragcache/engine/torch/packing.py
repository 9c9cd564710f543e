"""Weights in the order that the CPU's matrix kernels read, for passes of few rows: a repair, a probe, a decoded token.

A plain bfloat16 weight is brought into that order anew at every call, which costs such a pass more than its arithmetic.
"""

from __future__ import annotations

import torch
from torch import nn

# The order depends on the rows it is made for only a little; so many are typical of a repair.
ROWS = 32


class PackedLinear(nn.Module):
    """A linear layer whose weight is held packed, and not plain beside it. The numbers are those of the plain one."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
        self._bias = None if bias is None else bias.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return out


def packs(weight: torch.Tensor) -> bool:
    """Whether this weight's kernels know a packed order: bfloat16 on a CPU that multiplies it."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()  # false where torch was built without oneDNN
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
    """A linear layer of these weights, packed where that is possible."""
    if packs(weight):
        return PackedLinear(weight, bias)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


def pack_linears(module: nn.Module, *names: str) -> None:
    """Put packed layers in the places of the named linear layers, where that is possible."""
    for name in names:
        linear = getattr(module, name)
        if isinstance(linear, nn.Linear) and packs(linear.weight):
            setattr(module, name, PackedLinear(linear.weight, linear.bias))
