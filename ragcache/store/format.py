"""The header of a cache file: what is in it, where, and whether it is what was written.

    frame with JSON (frame.py) | profile | ids | layer 0 | layer 1 | …

The JSON is padded with spaces and each section with zeros to multiples of 64 bytes; a section's checksum covers its
padding too, so no byte of a file goes unchecked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
import xxhash

from ragcache.errors import ConfigError, CorruptEntry, ForeignEntry
from ragcache.store.codec import CODECS, KVShape, open_codec
from ragcache.store.frame import CHECKSUM, MAGIC, PREFIX, UNREADABLE, VERSION, Fetch, key_of, unframed
from ragcache.types import VariantKey

ALIGNMENT = 64
FIRST_LAYER = 2  # sections before it: profile and ids
_MOST = 2**48 - 1  # bytes or tokens that a header may tell of
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


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
    bare = PREFIX.size + len(text) + CHECKSUM.size
    text += b" " * (padded(bare) - bare)
    framed = PREFIX.pack(MAGIC, VERSION, len(text)) + text
    return framed + CHECKSUM.pack(xxhash.xxh3_64_intdigest(framed))


def unpack_header(fetch: Fetch, file_size: int, where: str) -> tuple[Header, int]:
    """The header and the offset of the first section. Raises CorruptEntry or ForeignEntry."""
    text, length = unframed(fetch, file_size, where)
    header = _from_json(text, where)
    _check_table(header, file_size - length, where)
    return header, length


def _check_table(header: Header, data_size: int, where: str) -> None:
    shape = header.shape
    if min(shape.layers, shape.kv_heads, shape.tokens, shape.head_dim) < 1:
        raise CorruptEntry(f"{where} holds no KV: {shape}")
    if len(header.lengths) != len(header.key.context) + 1 or not all(header.lengths[1:]):
        raise CorruptEntry(f"{where} has {len(header.lengths)} lengths for a context of {len(header.key.context)}")
    if header.ids_hash != header.key.chunk:
        raise CorruptEntry(f"{where} holds the ids of {header.ids_hash!r}, and is named by {header.key.chunk!r}")
    if len(header.sections) != shape.layers + FIRST_LAYER:  # before a list of as many is made
        raise CorruptEntry(f"{where} has {len(header.sections)} sections, and {shape.layers} layers")
    try:
        expected = section_sizes(header.shape, header.codec, header.lengths)
    except ConfigError as error:
        raise ForeignEntry(f"{where} cannot be decoded here: {error}") from error
    offset = 0
    for section, (name, size) in zip(header.sections, expected, strict=True):
        if (section.name, section.offset, section.size) != (name, offset, size):
            raise CorruptEntry(f"{where} lists {section}, where {name!r} of {size} bytes at {offset} belongs")
        offset += section.padded
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
            _whole(fields[name]) for name in ("layers", "kv_heads", "tokens", "head_dim")
        )
        shape = KVShape(layers, kv_heads, tokens, head_dim, _DTYPES[fields["dtype"]])
        return Header(
            key=key_of(fields),
            ids_hash=fields["ids_hash"],
            shape=shape,
            codec=fields["codec"],
            lossless=_lossless(fields, shape.dtype),
            lengths=tuple(map(_whole, fields["lengths"])),
            sections=tuple(
                Section(name, _whole(offset), _whole(size), told) for name, offset, size, told in fields["sections"]
            ),
        )
    except UNREADABLE as error:
        raise CorruptEntry(f"the header of {where} is not what this version writes: {error!r:.200}") from error


def _whole(told: object) -> int:
    if type(told) is not int or not 0 <= told <= _MOST:
        raise ValueError(f"{told!r} is no count")
    return told


def _lossless(fields: dict[str, Any], dtype: torch.dtype) -> bool:
    """A file of before this was told says nothing of what its KV was computed over: its codec alone decides. That of
    any file can deny it: no writer makes a codec keep what it drops.
    """
    told = fields.get("lossless", True)
    if not isinstance(told, bool):
        raise TypeError(f"lossless is {told!r}")
    codec = fields["codec"]
    if not isinstance(codec, str):
        raise TypeError(f"codec is {codec!r}")
    return told and codec in CODECS and open_codec(codec).lossless(dtype)  # a codec unknown here is refused later
