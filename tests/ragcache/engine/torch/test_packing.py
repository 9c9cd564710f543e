"""Packed weights compute what plain ones do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ragcache.engine.torch.decoder import PackedLinear, linear, pack_linears, packs


@pytest.mark.parametrize("rows", [1, 5, 33, 600])
@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_layer_computes_what_the_plain_one_does(rows: int, bias: bool) -> None:
    """Where the CPU multiplies bfloat16; elsewhere it is the plain one."""
    torch.manual_seed(rows)
    plain = nn.Linear(96, 40, bias=bias, dtype=torch.bfloat16)
    x = torch.randn(rows, 96, dtype=torch.bfloat16)
    # One rounding to bfloat16 apart at most: the two may sum in another order.
    torch.testing.assert_close(linear(plain.weight, plain.bias)(x), plain(x), rtol=2**-7, atol=2**-7)


def test_float32_stays_plain() -> None:
    """Its kernels take plain weights, and exactness is tested there."""
    assert not packs(torch.zeros(4, 4))
    module = nn.Module()
    module.inner = nn.Linear(4, 4)
    pack_linears(module, "inner")
    assert isinstance(module.inner, nn.Linear)


def test_the_plain_weight_is_gone_once_packed() -> None:
    module = nn.Module()
    module.inner = plain = nn.Linear(8, 8, dtype=torch.bfloat16)
    x, expected = torch.ones(3, 8, dtype=torch.bfloat16), F.linear(torch.ones(3, 8, dtype=torch.bfloat16), plain.weight)
    pack_linears(module, "inner")
    assert packs(plain.weight) == isinstance(module.inner, PackedLinear)
    torch.testing.assert_close(module.inner(x), expected + plain.bias, rtol=2**-6, atol=2**-6)
    assert packs(plain.weight) == (not list(module.parameters())), "what the module would save or move"
