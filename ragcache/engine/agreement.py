"""How far two computations of the same thing may be apart by rounding alone, and where to look for more."""

from __future__ import annotations

import torch

# A whole forward against another, by row or relative to the largest value.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 6e-2}
DEFAULT_TOLERANCE = 6e-2
# One operation against another, by row.
CLOSE = {torch.float32: 1e-3}
CLOSE_16_BITS = 2e-2
ANGLE = 2e-7  # rounding of an angle in float32, per position


def tolerance(dtype: torch.dtype) -> float:
    return TOLERANCE.get(dtype, DEFAULT_TOLERANCE)


def closeness(dtype: torch.dtype) -> float:
    return CLOSE.get(dtype, CLOSE_16_BITS)


def row_errors(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """[m, n, dim] -> how far each of the n rows is off, relative to a usual row of the same m [n]. Heads may differ in
    size by an order of magnitude.
    """
    usual = theirs.float().norm(dim=-1).mean(-1, keepdim=True).clamp_min(1e-12)
    return torch.as_tensor(((ours.float() - theirs.float()).norm(dim=-1) / usual).amax(0))


def own_errors(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """[n, dim] -> how far each row is off, relative to itself [n]. Rows may differ in size by orders of magnitude."""
    wide = theirs.float()
    return torch.as_tensor((ours.float() - wide).norm(dim=-1) / wide.norm(dim=-1).clamp_min(1e-12))


def wrong_turn(ours: torch.Tensor, theirs: torch.Tensor, places: list[int]) -> tuple[int, float] | None:
    """K [kv_heads, n, head_dim] as two RoPEs turn it to `places` -> the place where they differ most, and by how much;
    None where rounding explains it. Angles grow with the position, and so does their rounding.
    """
    errors = row_errors(ours, theirs)
    allowed = closeness(theirs.dtype) + ANGLE * torch.tensor(places, device=errors.device)
    if bool((errors <= allowed).all()):  # false for nan
        return None
    worst = int((errors - allowed).nan_to_num(torch.inf).argmax())
    return places[worst], float(errors[worst])


def sampled_positions(length: int) -> list[int]:
    """Some two dozen, ascending, all over a context of `length`: a RoPE may differ at far ones alone."""
    near, far = (0, 1, 2, 3, 5, 7, 12, 23, 40, 61, 97), range(length - 3, length)
    between = (length * part // 10 for part in range(1, 10))
    return sorted({place for place in (*near, *between, *far) if 0 <= place < length})
