"""No byte of a file can change without being noticed."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from ragcache.errors import CorruptEntry, ForeignEntry
from ragcache.store import CODECS, open_codec
from ragcache.store.entry import EntryReader, pack
from ragcache.store.format import ALIGNMENT
from ragcache.types import Variant


def packed(variant: Variant, codec: str = "raw") -> bytes:
    return b"".join(pack(variant, open_codec(codec)))


def read_back(data: bytes, folder: Path) -> Variant:
    path = folder / "entry.kv"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return EntryReader.parts(fd, "entry.kv").whole(fd).variant()
    finally:
        os.close(fd)


def with_header(data: bytes, version: int = 1, **changes: Any) -> bytes:
    """The file with another header, its checksum made right again."""
    (length,) = struct.unpack_from("<I", data, 6)
    fields = {**json.loads(data[10 : 10 + length]), **changes}
    return framed(data, json.dumps(fields).encode(), version)


def framed(data: bytes, text: bytes, version: int = 1) -> bytes:
    (length,) = struct.unpack_from("<I", data, 6)
    frame = struct.pack("<4sHI", b"RCKV", version, len(text)) + text
    return frame + struct.pack("<Q", xxhash.xxh3_64_intdigest(frame)) + data[10 + length + 8 :]


def sections(data: bytes) -> list[list[Any]]:
    (length,) = struct.unpack_from("<I", data, 6)
    table: list[list[Any]] = json.loads(data[10 : 10 + length])["sections"]
    return table


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_byte_is_noticed(tmp_path: Path, make_variant: Any, codec: str) -> None:
    data = packed(make_variant((1, 2), context=(), layers=1, heads=1, dim=2), codec)
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 1
        with pytest.raises(CorruptEntry, match=r"entry\.kv"):
            read_back(bytes(bad), tmp_path)


def test_every_truncation_is_noticed(tmp_path: Path, make_variant: Any) -> None:
    data = packed(make_variant((1, 2), context=(), layers=1, heads=1, dim=2))
    for length in range(len(data)):
        with pytest.raises(CorruptEntry):
            read_back(data[:length], tmp_path)


@pytest.mark.parametrize("tail", [b"\0", b"x", b"\0" * ALIGNMENT])
def test_trailing_bytes_are_noticed(tmp_path: Path, make_variant: Any, tail: bytes) -> None:
    with pytest.raises(CorruptEntry):
        read_back(packed(make_variant()) + tail, tmp_path)


@given(data=st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_other_file_is_corrupt(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    for content in (data, b"RCKV" + data):
        with pytest.raises(CorruptEntry):
            read_back(content, tmp_path_factory.getbasetemp())


def test_a_missing_or_swapped_layer_is_noticed(tmp_path: Path, make_variant: Any) -> None:
    data = packed(make_variant(layers=3))
    table = sections(data)
    size = -(-table[-1][2] // ALIGNMENT) * ALIGNMENT
    swapped = [*table[:2], table[3], table[2], table[4]]
    for bad in (
        with_header(data, sections=table[:-1]),
        with_header(data[:-size], sections=table[:-1]),
        with_header(data, sections=swapped),
        with_header(data, sections=[*table, table[-1]]),
        data[: -2 * size] + data[-size:] + data[-2 * size : -size],
    ):
        with pytest.raises(CorruptEntry):
            read_back(bad, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"ids_hash": "0" * 64},
        {"tokens": 4},
        {"layers": 1},
        {"head_dim": 8},
        {"dtype": "int8"},
        {"lengths": [1]},
        {"context": None},
        {"tokens": "many"},
        {"tokens": 0},
        {"layers": -1},
        {"layers": 50_000_000},
        {"layers": float("inf")},
        {"fingerprint": ""},
        {"fingerprint": "../../x"},
        {"fingerprint": ["a"]},
        {"system": 5},
        {"chunk": None},
        {"chunk": "\ud800"},
        {"context": [1, 2]},
        {"context": ["a\nb", "c"]},
        {"context": "ab"},
        {"history": []},
        {"lengths": ["x", 1, 1]},
        {"lengths": [float("nan"), 1, 1]},
        {"lengths": [1, 0, 1]},
        {"lengths": 10**4000},
        {"codec": ["raw"]},
        {"dtype": []},
        {"sections": [["profile"]]},
        {"sections": [["profile", 0.0, 60.0, ""]] * 4},
    ],
)
def test_a_header_that_does_not_fit_the_data_is_corrupt(tmp_path: Path, make_variant: Any, changes: Any) -> None:
    with pytest.raises(CorruptEntry):
        read_back(with_header(packed(make_variant()), **changes), tmp_path)


@pytest.mark.parametrize("text", [b"[]", b"\xff\xfe", b'{"layers": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
def test_a_header_of_another_form_is_corrupt(tmp_path: Path, make_variant: Any, text: bytes) -> None:
    with pytest.raises(CorruptEntry, match="not what this version writes"):
        read_back(framed(packed(make_variant()), text), tmp_path)


def test_a_file_is_read_no_further_than_its_header_is_right(tmp_path: Path, make_variant: Any) -> None:
    """What a header claims costs no memory before it is known to be so."""
    data = packed(make_variant())
    for claimed in (with_header(data, layers=50_000_000), with_header(data, tokens=2**40), data[:6] + b"\xff" * 4):
        path = tmp_path / "entry.kv"
        path.write_bytes(claimed)
        os.truncate(path, 1 << 33)
        fd = os.open(path, os.O_RDONLY)
        tracemalloc.start()
        try:
            with pytest.raises(CorruptEntry):
                EntryReader.parts(fd, "entry.kv").whole(fd)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
            os.close(fd)


def test_a_profile_is_made_of_attention(tmp_path: Path, make_variant: Any) -> None:
    for strange in (float("nan"), float("inf"), -1.0):
        variant = make_variant()
        variant.profile.inter[0, 0] = strange
        with pytest.raises(CorruptEntry, match="no attention"):
            read_back(packed(variant), tmp_path)


def test_a_rewritten_header_is_otherwise_accepted(tmp_path: Path, make_variant: Any) -> None:
    """So the refusals above and below are for what was changed."""
    assert torch.equal(read_back(with_header(packed(make_variant())), tmp_path).k, make_variant().k)


def test_another_version_is_foreign(tmp_path: Path, make_variant: Any) -> None:
    with pytest.raises(ForeignEntry, match=r"another version.*schema 2"):
        read_back(with_header(packed(make_variant()), version=2), tmp_path)


def test_an_unknown_codec_is_foreign(tmp_path: Path, make_variant: Any) -> None:
    with pytest.raises(ForeignEntry, match="int3"):
        read_back(with_header(packed(make_variant()), codec="int3"), tmp_path)


@pytest.mark.parametrize("name", ["fingerprint", "system", "chunk", "context"])
def test_another_key_is_foreign(tmp_path: Path, make_variant: Any, name: str) -> None:
    variant = make_variant()
    asked = replace(variant.key, **{name: ("z",) if name == "context" else "z"})
    (tmp_path / "entry.kv").write_bytes(packed(variant))
    fd = os.open(tmp_path / "entry.kv", os.O_RDONLY)
    try:
        reader = EntryReader.parts(fd, "entry.kv")
        reader.expect(variant.key)
        with pytest.raises(ForeignEntry, match=f"another {name}"):
            reader.expect(asked)
    finally:
        os.close(fd)


@pytest.mark.parametrize("codec", CODECS)
def test_sections_are_aligned_and_a_layer_can_be_read_alone(tmp_path: Path, make_variant: Any, codec: str) -> None:
    variant = make_variant(tuple(range(11)), layers=4, dtype=torch.bfloat16)
    data = packed(variant, codec)
    whole = read_back(data, tmp_path)
    table = sections(data)
    assert len(data) % ALIGNMENT == 0
    assert all(offset % ALIGNMENT == 0 for _, offset, _, _ in table)
    assert [name for name, *_ in table] == ["profile", "ids", "layer 0", "layer 1", "layer 2", "layer 3"]
    broken = bytearray(data)
    broken[-1] ^= 1  # layer 3 is bad; the others can still be read
    (tmp_path / "entry.kv").write_bytes(broken)
    fd = os.open(tmp_path / "entry.kv", os.O_RDONLY)
    try:
        reader = EntryReader.parts(fd, "entry.kv")
        k, v = reader.layers(1, 3)
        with pytest.raises(CorruptEntry, match="layer 3"):
            reader.layers(3, 4)
    finally:
        os.close(fd)
    assert torch.equal(k, whole.k[1:3])
    assert torch.equal(v, whole.v[1:3])


def test_bfloat16_is_given_out_without_a_copy(tmp_path: Path, make_variant: Any) -> None:
    variant = read_back(packed(make_variant(dtype=torch.bfloat16), "bf16"), tmp_path)
    assert variant.k.untyped_storage().data_ptr() == variant.v.untyped_storage().data_ptr()
    assert variant.k.stride()[2:] == (variant.k.shape[3], 1)


# -- what was lost --------------------------------------------------------------------------------------------------


def without(data: bytes, name: str) -> bytes:
    """The file as it was written before that was told."""
    (length,) = struct.unpack_from("<I", data, 6)
    fields = json.loads(data[10 : 10 + length])
    del fields[name]
    return framed(data, json.dumps(fields).encode())


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
    ],
)
def test_a_file_tells_whether_anything_was_lost(
    tmp_path: Path, make_variant: Any, codec: str, dtype: torch.dtype, expected: bool
) -> None:
    data = packed(make_variant(dtype=dtype), codec)
    assert read_back(data, tmp_path).lossless is expected
    assert read_back(without(data, "lossless"), tmp_path).lossless is expected, "an older file is judged by its codec"
    assert not read_back(packed(make_variant(dtype=dtype, lossless=False), codec), tmp_path).lossless
    claimed = with_header(data, lossless=True)
    assert read_back(claimed, tmp_path).lossless is expected, "a codec is not believed to keep what it drops"


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_it_is_told_in_one_way(tmp_path: Path, make_variant: Any, value: Any) -> None:
    with pytest.raises(CorruptEntry, match="lossless"):
        read_back(with_header(packed(make_variant()), lossless=value), tmp_path)
