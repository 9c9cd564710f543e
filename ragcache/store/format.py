"""The header of a cache file: what is in it, where, and whether it is what was written.

    RCKV | u16 version | u32 length of the JSON | JSON | u64 xxh3 of all before | profile | ids | layer 0 | layer 1 | …

This much of the frame (magic, length, checksum) holds for all versions, so a newer file can be told from a broken one.
The JSON is padded with spaces and each section with zeros to multiples of 64 bytes; a section's checksum covers its
padding too, so no byte of a file goes unchecked.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import xxhash

from ragcache.errors import ConfigError, CorruptEntry, ForeignEntry
from ragcache.store.codec import CODECS, KVShape, open_codec
from ragcache.types import VariantKey

MAGIC = b"RCKV"
VERSION = 1
ALIGNMENT = 64
_PREFIX = struct.Struct("<4sHI")
_CHECKSUM = struct.Struct("<Q")
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

Fetch = Callable[[int, int], memoryview]  # (offset, size) of a file -> exactly these bytes, or raises CorruptEntry


@dataclass(frozen=True)
class Section:
    name: str
    offset: int  # from the end of the header
    size: int  # without the padding
    checksum: str  # hexadecimal, over the padded bytes

    @property
    def padded(self) -> int:
        return padded(self.size)


@dataclass(frozen=True)
class Header:
    key: VariantKey
    ids_hash: str
    shape: KVShape
    codec: str
    lossless: bool  # see Variant
    lengths: tuple[int, ...]  # rows of the profile: tokens of the System and of each context chunk
    sections: tuple[Section, ...]  # profile, ids, then one per layer


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def section_sizes(shape: KVShape, codec: str, lengths: tuple[int, ...]) -> list[tuple[str, int]]:
    """Names and sizes of all sections, in file order: the only table a sound header can have."""
    layer = open_codec(codec).layer_nbytes(shape)
    profile = (len(lengths) + 2) * shape.tokens * 4
    layers = [(f"layer {index}", layer) for index in range(shape.layers)]
    return [("profile", profile), ("ids", shape.tokens * 4), *layers]


def checksum(data: memoryview) -> str:
    return xxhash.xxh3_64_hexdigest(data)


def pack_header(header: Header) -> bytes:
    text = json.dumps(_to_json(header), separators=(",", ":")).encode()
    bare = _PREFIX.size + len(text) + _CHECKSUM.size
    text += b" " * (padded(bare) - bare)
    framed = _PREFIX.pack(MAGIC, VERSION, len(text)) + text
    return framed + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(framed))


def unpack_header(fetch: Fetch, file_size: int, where: str) -> tuple[Header, int]:
    """The header and the offset of the first section. Raises CorruptEntry or ForeignEntry."""
    magic, version, length = _PREFIX.unpack(fetch(0, min(_PREFIX.size, file_size)).tobytes().ljust(_PREFIX.size, b"\0"))
    end = _PREFIX.size + length
    if magic != MAGIC or end + _CHECKSUM.size > file_size:
        raise CorruptEntry(f"{where} is no cache file, or is cut short: {file_size} bytes beginning with {magic!r}")
    framed = fetch(0, end + _CHECKSUM.size)
    if _CHECKSUM.unpack(framed[end:])[0] != xxhash.xxh3_64_intdigest(framed[:end]):
        raise CorruptEntry(f"the header of {where} does not match its checksum")
    if version != VERSION:
        raise ForeignEntry(
            f"{where} was written by another version of ragcache (schema {version}, this one reads {VERSION}): "
            "it will be computed again"
        )
    header = _from_json(framed[_PREFIX.size : end].tobytes(), where)
    _check_table(header, file_size - len(framed), where)
    return header, len(framed)


def _check_table(header: Header, data_size: int, where: str) -> None:
    try:
        expected = section_sizes(header.shape, header.codec, header.lengths)
    except ConfigError as error:
        raise ForeignEntry(f"{where} cannot be decoded here: {error}") from error
    offset = 0
    for section, (name, size) in zip(header.sections, expected, strict=False):
        if (section.name, section.offset, section.size) != (name, offset, size):
            raise CorruptEntry(f"{where} lists {section}, where {name!r} of {size} bytes at {offset} belongs")
        offset += section.padded
    if len(header.sections) != len(expected):
        raise CorruptEntry(f"{where} has {len(header.sections)} sections instead of {len(expected)}")
    if offset != data_size:
        raise CorruptEntry(f"{where} holds {data_size} bytes after its header instead of {offset}")


def _to_json(header: Header) -> dict[str, Any]:
    key, shape = header.key, header.shape
    return {
        "fingerprint": key.fingerprint,
        "system": key.system,
        "context": key.context,
        "history": key.history,
        "chunk": key.chunk,
        "ids_hash": header.ids_hash,
        "tokens": shape.tokens,
        "layers": shape.layers,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "dtype": next(name for name, dtype in _DTYPES.items() if dtype == shape.dtype),
        "codec": header.codec,
        "lossless": header.lossless,
        "lengths": header.lengths,
        "sections": [[part.name, part.offset, part.size, part.checksum] for part in header.sections],
    }


def _from_json(text: bytes, where: str) -> Header:
    try:
        fields = json.loads(text)
        layers, kv_heads, tokens, head_dim = (
            int(fields[name]) for name in ("layers", "kv_heads", "tokens", "head_dim")
        )
        shape = KVShape(layers, kv_heads, tokens, head_dim, _DTYPES[fields["dtype"]])
        return Header(
            key=VariantKey(
                fields["fingerprint"],
                fields["system"],
                tuple(fields["context"]),
                fields["chunk"],
                fields["history"],
            ),
            ids_hash=fields["ids_hash"],
            shape=shape,
            codec=fields["codec"],
            lossless=_lossless(fields, shape.dtype),
            lengths=tuple(fields["lengths"]),
            sections=tuple(Section(*row) for row in fields["sections"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptEntry(f"the header of {where} is not what this version writes: {error!r}") from error


def _lossless(fields: dict[str, Any], dtype: torch.dtype) -> bool:
    """A file of before this was told says nothing of what its KV was computed over: its codec alone decides. That of
    any file can deny it: no writer makes a codec keep what it drops.
    """
    told = fields.get("lossless", True)
    if not isinstance(told, bool):
        raise TypeError(f"lossless is {told!r}")
    codec = fields["codec"]
    return told and codec in CODECS and open_codec(codec).lossless(dtype)  # a codec unknown here is refused later
