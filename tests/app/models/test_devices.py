from __future__ import annotations

import pytest
import torch

from app.models.devices import has_bfloat16_dot, resolve_device, resolve_dtype
from app.settings import load_settings
from ragcache.errors import ConfigError


def test_auto_takes_cuda_where_there_is_one() -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device(load_settings(None)).type == expected


def test_cpu_is_cpu() -> None:
    assert resolve_device(load_settings(None, device="cpu")) == torch.device("cpu")


def test_cuda_is_itself_or_a_clear_refusal() -> None:
    settings = load_settings(None, device="cuda")
    if torch.cuda.is_available():
        assert resolve_device(settings).type == "cuda"
    else:
        with pytest.raises(ConfigError, match=r"RAGCACHE_DEVICE='cuda', but torch .* finds no CUDA device"):
            resolve_device(settings)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("name", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_named_dtype_is_taken_at_its_word(name: str, dtype: torch.dtype, device: str) -> None:
    assert resolve_dtype(load_settings(None, dtype=name), torch.device(device)) == dtype


def test_auto_dtype_is_what_the_device_multiplies_natively() -> None:
    settings = load_settings(None)
    assert resolve_dtype(settings, torch.device("cuda")) == torch.bfloat16
    on_cpu = resolve_dtype(settings, torch.device("cpu"))
    assert on_cpu == (torch.bfloat16 if has_bfloat16_dot() else torch.float32)
