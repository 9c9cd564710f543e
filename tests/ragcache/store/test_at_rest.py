"""What a file has lost, and that it tells so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ragcache.store.codec.int8 import WideInt8Codec
from ragcache.store.entry import pack
from tests.ragcache.store.test_format import header_of, packed, read_back, with_header


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


def test_int8_of_before_is_read_and_told_apart(tmp_path: Path, make_variant: Any) -> None:
    """Its groups have their low and step in 32 bits."""
    variant = make_variant(tuple(range(40)), dim=16, dtype=torch.bfloat16)
    old, new = b"".join(pack(variant, WideInt8Codec())[1]), packed(variant, "int8")
    assert (header_of(old)["codec"], header_of(new)["codec"]) == ("int8", "int8-2")
    assert len(old) > len(new)
    for data in (old, new):
        found = read_back(data, tmp_path)
        assert found.lineage.lost == ("int8",)
        for put, got in ((variant.k, found.k), (variant.v, found.v)):
            assert float((put - got).abs().max()) < 0.03
