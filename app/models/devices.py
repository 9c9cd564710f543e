"""The device and the number format of the settings."""

from __future__ import annotations

import torch

from app.settings import Settings, variable
from ragcache.errors import ConfigError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def resolve_device(settings: Settings) -> torch.device:
    if settings.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"{variable('device')}='cuda', but torch {torch.__version__} finds no CUDA device: "
            "use auto or cpu, or install a CUDA build of torch"
        )
    return torch.device(settings.device)


def resolve_dtype(settings: Settings, device: torch.device) -> torch.dtype:
    if settings.dtype != "auto":
        return DTYPES[settings.dtype]
    return torch.bfloat16 if device.type == "cuda" or has_bfloat16_dot() else torch.float32


def has_bfloat16_dot() -> bool:
    """Whether this CPU multiplies bfloat16 natively; where it emulates, float32 is faster."""
    able = torch.cpu.get_capabilities()
    return any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
