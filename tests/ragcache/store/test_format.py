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

from ragcache.errors import CorruptEntry, ForeignEntry, NewerEntry
from ragcache.store.codec import CODECS, open_codec
from ragcache.store.entry import EntryReader, pack
from ragcache.store.format import ALIGNMENT, BLOCK, FINE, Section, unpack_header
from ragcache.store.frame import VERSION
from ragcache.types import Variant


def packed(variant: Variant, codec: str = "raw") -> bytes:
    return b"".join(pack(variant, open_codec(codec))[1])


def read_back(data: bytes, folder: Path) -> Variant:
    path = folder / "entry.kv"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return EntryReader.parts(fd, "entry.kv").whole(fd).variant()
    finally:
        os.close(fd)


def header_of(data: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<I", data, 6)
    fields: dict[str, Any] = json.loads(data[10 : 10 + length])
    return fields


def with_header(data: bytes, version: int = VERSION, **changes: Any) -> bytes:
    """The file with another header, its checksum made right again."""
    return framed(data, json.dumps({**header_of(data), **changes}).encode(), version)


def framed(data: bytes, text: bytes, version: int = VERSION) -> bytes:
    (length,) = struct.unpack_from("<I", data, 6)
    frame = struct.pack("<4sHI", b"RCKV", version, len(text)) + text
    return frame + struct.pack("<Q", xxhash.xxh3_64_intdigest(frame)) + data[10 + length + 8 :]


def first_version(data: bytes, **changes: Any) -> bytes:
    """The file as version 1 wrote it: its tokens are one block."""
    fields = header_of(data)
    told = list(zip(sections(data), fields.pop("checksums"), strict=True))
    lost = [fields.pop(name) for name in ("border", "passes", "seen", "complete", "block", "lost")][-1]
    fields |= {"ids_hash": fields["chunk"], "lossless": not lost}
    fields["sections"] = [[one.name, one.offset, one.size, checksum] for one, checksum in told]
    return framed(data, json.dumps(fields | changes).encode(), version=1)


def sections(data: bytes) -> tuple[Section, ...]:
    return unpack_header(lambda at, size: memoryview(data[at : at + size]), len(data), "entry.kv")[0].sections


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_byte_is_noticed(tmp_path: Path, make_variant: Any, codec: str) -> None:
    data = packed(make_variant((1, 2), context=("c",), layers=1, heads=1, dim=2), codec)
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
    table, size = header_of(data)["checksums"], sections(data)[-1].padded
    for bad in (
        with_header(data, checksums=table[:-1]),
        with_header(data[:-size], checksums=table[:-1]),
        with_header(data, checksums=[*table[:2], table[3], table[2], table[4]]),
        with_header(data, checksums=[*table, table[-1]]),
        data[: -2 * size] + data[-size:] + data[-2 * size : -size],
    ):
        with pytest.raises(CorruptEntry):
            read_back(bad, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"chunk": "0" * 64},
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
        {"checksums": ["0" * 16]},
        {"checksums": "0000"},
        {"checksums": [1, 2, 3, 4]},
        {"block": 0},
        {"block": 2},
        {"block": "many"},
        {"border": "a\nb"},
        {"border": None},
        {"complete": 1},
        {"seen": "ab"},
        {"seen": ["c0"], "complete": True},
        {"seen": [str(one) for one in range(1000)]},
        {"lost": ["x"] * 17},
        {"lost": ["x" * 129]},
        {"seen": ["a\nb"]},
        {"lost": [1]},
        {"lost": "int8"},
        {"passes": [], "complete": True},
        {"passes": None},
        {"passes": [[0, 3]]},
        {"passes": [[0, 3, ["c0-elsewhere", 1]]]},
        {"passes": [[0, 2, ["c0-elsewhere", "c1-elsewhere"]]]},
        {"passes": [[1, 3, ["c0-elsewhere", "c1-elsewhere"]]]},
        {"passes": [[0, 3, ["c0-elsewhere", "another"]]]},
        {"passes": [[0, 0, []], [0, 3, ["c0-elsewhere", "c1-elsewhere"]]]},
        {"history": ""},
        {"history": "0" * 64},
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


@pytest.mark.parametrize("version", [0, 3])
def test_another_version_is_foreign(tmp_path: Path, make_variant: Any, version: int) -> None:
    kind, told = (NewerEntry, "a newer version") if version else (ForeignEntry, "another version")
    with pytest.raises(kind, match=rf"made by {told}.*schema {version}"):
        read_back(with_header(packed(make_variant()), version=version), tmp_path)


def test_an_unknown_codec_is_a_newer_version_s(tmp_path: Path, make_variant: Any) -> None:
    with pytest.raises(NewerEntry, match=r"made by a newer version.*int3"):
        read_back(with_header(packed(make_variant()), codec="int3"), tmp_path)


@pytest.mark.parametrize("name", ["fingerprint", "system", "chunk", "context", "history", "border"])
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
@pytest.mark.parametrize("tokens", [11, BLOCK, BLOCK + 1, 2 * BLOCK + 30])
def test_each_layer_of_each_block_of_tokens_can_be_read_alone(
    tmp_path: Path, make_variant: Any, codec: str, tokens: int
) -> None:
    variant = make_variant(tuple(range(tokens)), layers=4, dtype=torch.bfloat16)
    data = packed(variant, codec)
    whole = read_back(data, tmp_path)
    table, block = sections(data), BLOCK if tokens <= BLOCK else FINE
    blocks = -(-tokens // block)
    assert len(data) % ALIGNMENT == 0
    assert all(part.offset % ALIGNMENT == 0 for part in table)
    assert len(table) == 2 + 4 * blocks
    broken = bytearray(data)
    broken[-1] ^= 1  # layer 3 of the last block is bad; the others can still be read
    (tmp_path / "entry.kv").write_bytes(broken)
    fd = os.open(tmp_path / "entry.kv", os.O_RDONLY)
    try:
        reader = EntryReader.parts(fd, "entry.kv")
        some = [reader.kv(number, range(1, 3)) for number in range(blocks)]
        last = [reader.kv(number, range(3, 4)) for number in range(blocks - 1)]
        with pytest.raises(CorruptEntry, match="layer 3"):
            reader.kv(blocks - 1, range(3, 4))
    finally:
        os.close(fd)
    for found, part in zip(zip(*some, strict=True), (whole.k, whole.v), strict=True):
        assert torch.equal(torch.cat(found, dim=2), part[1:3])
    assert [k.shape[2] for k, _ in last] == [block] * (blocks - 1)
    if open_codec(codec).lossless(torch.bfloat16):
        assert torch.equal(whole.k, variant.k)
        assert torch.equal(whole.v, variant.v)


def test_bfloat16_is_given_out_without_a_copy(tmp_path: Path, make_variant: Any) -> None:
    variant = read_back(packed(make_variant(dtype=torch.bfloat16), "bf16"), tmp_path)
    assert variant.k.untyped_storage().data_ptr() == variant.v.untyped_storage().data_ptr()
    assert variant.k.stride()[2:] == (variant.k.shape[3], 1)
