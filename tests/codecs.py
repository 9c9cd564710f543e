"""What tests know of each codec of the registry. A new one needs a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

# The most that may be lost of each value, from the values as they are put, [layers, heads, n, dim], and the dimension
# along which those stand that are coded together. Of a number format in which this is nothing the codec is lossless.
Loss = Callable[[torch.Tensor, int], torch.Tensor]


def nothing(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.zeros(x.shape)


def bfloat16(x: torch.Tensor, dim: int) -> torch.Tensor:
    return nothing(x, dim) if x.dtype == torch.bfloat16 else x.float().abs() * 2**-8


def steps(count: int) -> Loss:
    """Half of one of so many steps between the lowest and the highest, and what rounding does to the result."""

    def loss(x: torch.Tensor, dim: int) -> torch.Tensor:
        values, kind = x.float(), torch.finfo(x.dtype)
        half = (values.amax(dim, keepdim=True) - values.amin(dim, keepdim=True)) / (2 * count) * 1.001
        computing = values.abs().amax(dim, keepdim=True) * 4 * torch.finfo(torch.float32).eps
        return half + computing + (values.abs() + half) * kind.eps + kind.smallest_normal * kind.eps

    return loss


def between(k_steps: int, v_steps: int) -> Loss:
    """Steps of K, whose values of a channel stand together, and of V; both ends of a group are of bfloat16."""

    def loss(x: torch.Tensor, dim: int) -> torch.Tensor:
        values, count, eps = x.float(), k_steps if dim == 2 else v_steps, torch.finfo(torch.bfloat16).eps
        ends = values.abs().amax(dim, keepdim=True) * eps + torch.finfo(torch.float32).smallest_normal
        wider = (values.amax(dim, keepdim=True) - values.amin(dim, keepdim=True) + ends) * eps + ends
        return steps(count)(x, dim) + wider / (2 * count) * 1.001

    return loss


CODEC_ROWS: Mapping[str, Loss] = {
    "raw": nothing,
    "bf16": bfloat16,
    "int8": between(255, 255),
    "int4": between(31, 15),
}
