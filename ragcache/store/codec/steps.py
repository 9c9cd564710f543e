"""Groups of values as even steps from the lowest to the highest.

A group's floats are bfloat16, which has the range of float32: float16 would make inf of large values. The low is
rounded down and the step up, so that they span the group, and the error of a value is at most half a step.
"""

from __future__ import annotations

import torch


def quantise(group: torch.Tensor, dim: int, most: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Low and step of each group along `dim`, as float32 that bfloat16 holds, and 0 to `most` for each value."""
    low = -_rounded_up(-group.amin(dim, keepdim=True))
    step = _rounded_up((group.amax(dim, keepdim=True) - low) / most)
    # A constant group has step 0: every value is its low. What is no number makes its group none.
    found = ((group - low) / torch.where(step > 0, step, 1.0)).round().nan_to_num(0).clamp(0, most)
    return low, step, found.to(torch.uint8)


def _rounded_up(x: torch.Tensor) -> torch.Tensor:
    """To a number of bfloat16, as float32."""
    near = x.to(torch.bfloat16)
    above = torch.nextafter(near, torch.full_like(near, torch.inf))
    return torch.where(near < x, above, near).float()
