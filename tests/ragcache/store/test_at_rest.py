"""What a file has lost, and that it tells so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.ragcache.store.test_format import packed, read_back, with_header


@pytest.mark.parametrize(
    ("codec", "dtype", "expected"),
    [
        ("raw", torch.float32, True),
        ("raw", torch.bfloat16, True),
        ("bf16", torch.float32, False),
        ("bf16", torch.float16, False),
        ("bf16", torch.bfloat16, True),
        ("int8", torch.float32, False),
        ("int8", torch.bfloat16, False),
        ("int4", torch.float32, False),
        ("int4", torch.bfloat16, False),
    ],
)
def test_a_file_tells_whether_anything_was_lost(
    tmp_path: Path, make_variant: Any, codec: str, dtype: torch.dtype, expected: bool
) -> None:
    data = packed(make_variant(dtype=dtype), codec)
    assert read_back(data, tmp_path).lineage.lost == (() if expected else (codec,))
    assert not read_back(packed(make_variant(dtype=dtype, lost=("before",)), codec), tmp_path).lossless
    claimed = with_header(data, lost=[])
    assert read_back(claimed, tmp_path).lossless is expected, "a codec is not believed to keep what it drops"
