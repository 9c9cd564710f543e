"""The header of a cache file: what is in it, where it comes from, and whether it is what was written.

    frame with JSON (frame.py) | profile | ids | tokens 0 to 255: layer 0 | layer 1 | … | tokens 256 to …

So whoever wants some layers of some tokens reads and checks these alone. The JSON is padded with spaces and each
section with zeros to multiples of 64 bytes; a section's checksum covers its padding too, so no byte goes unchecked.
Version 1 has all tokens in one block, and tells its sections one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
import xxhash

from ragcache.address import MOST_TOLD, lineage_flaw, untold_lineage
from ragcache.errors import ConfigError, CorruptEntry
from ragcache.store.codec import KVShape, stored_codec
from ragcache.store.frame import (
    CHECKSUM,
    MAGIC,
    PREFIX,
    UNREADABLE,
    VERSION,
    Fetch,
    are_names,
    key_of,
    made_by_a_newer_one,
    unframed,
)
from ragcache.types import Lineage, Pass, Span, VariantKey

ALIGNMENT = 64
BLOCK = 1024  # tokens: larger ones than of nearly all chunks, which so need not be joined when they are read
FINE = 256  # of what is longer: it is joined anyway, and so may be read in part
MOST_FINE = 2**16  # tokens of what has such blocks, or its header would be long
FIRST_LAYER = 2  # sections before it: profile and ids
MOST_SECTIONS = 2**17  # such as those of 256 layers and 131,072 tokens
MOST_LOST = 16
_MOST = 2**48 - 1  # bytes or tokens that a header may tell of
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_UNTOLD = "unknown"  # what has rounded the KV that a file of version 1 was computed over


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
    lineage: Lineage  # of the KV as it is stored
    shape: KVShape
    codec: str  # as it is stored
    lengths: tuple[int, ...]  # rows of the profile: tokens of the System and of each context chunk
    block: int  # tokens that are encoded together
    checksums: tuple[str, ...]  # of the sections: profile, ids, then of each block of tokens all layers

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        sizes = section_sizes(self.shape, self.codec, self.lengths, self.block)
        return tuple(_placed(sizes, self.checksums))

    @cached_property
    def blocks(self) -> list[Span]:
        return blocks_of(self.shape.tokens, self.block)


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def block_for(tokens: int) -> int:
    """Of a file that is written."""
    return FINE if BLOCK < tokens <= MOST_FINE else BLOCK


def blocks_of(tokens: int, block: int) -> list[Span]:
    return [Span(start, min(start + block, tokens)) for start in range(0, tokens, block)]


def section_sizes(shape: KVShape, codec: str, lengths: tuple[int, ...], block: int) -> list[tuple[str, int]]:
    """Names and sizes of all sections, in file order: the only table a sound header can have."""
    parts = [("profile", (len(lengths) + 2) * shape.tokens * 4), ("ids", shape.tokens * 4)]
    blocks = blocks_of(shape.tokens, block)
    for span in blocks:
        size = stored_codec(codec).layer_nbytes(shape.with_tokens(len(span)))
        which = f" of tokens {span.start} to {span.end - 1}" if len(blocks) > 1 else ""
        parts += [(f"layer {layer}{which}", size) for layer in range(shape.layers)]
    return parts


def _placed(sizes: Sequence[tuple[str, int]], checksums: Sequence[str]) -> Iterator[Section]:
    offset = 0
    for (name, size), checksum in zip(sizes, checksums, strict=True):
        yield Section(name, offset, size, checksum)
        offset += padded(size)


def checksum(data: memoryview) -> str:
    return xxhash.xxh3_64_hexdigest(data)


def pack_header(header: Header) -> bytes:
    text = json.dumps(_to_json(header), separators=(",", ":")).encode()
    bare = PREFIX.size + len(text) + CHECKSUM.size
    text += b" " * (padded(bare) - bare)
    framed = PREFIX.pack(MAGIC, VERSION, len(text)) + text
    return framed + CHECKSUM.pack(xxhash.xxh3_64_intdigest(framed))


def unpack_header(fetch: Fetch, file_size: int, where: str) -> tuple[Header, int]:
    """The header and the offset of the first section. Raises CorruptEntry or ForeignEntry, NewerEntry among them."""
    frame = unframed(fetch, file_size, where)
    try:
        fields = json.loads(frame.text)
        header = _first_version(fields) if frame.version == 1 else _second_version(fields)
    except UNREADABLE as error:
        raise CorruptEntry(f"the header of {where} is not what this version writes: {error!r:.200}") from error
    _check(header, file_size - frame.length, where)
    if frame.version == 1:
        _check_table(header, fields["sections"], where)
    return header, frame.length


def _check(header: Header, data_size: int, where: str) -> None:
    shape, key = header.shape, header.key
    if min(shape.layers, shape.kv_heads, shape.tokens, shape.head_dim, header.block) < 1:
        raise CorruptEntry(f"{where} holds no KV: {shape} in blocks of {header.block}")
    if len(header.lengths) != len(key.context) + 1 or not all(header.lengths[1:]):
        raise CorruptEntry(f"{where} has {len(header.lengths)} lengths for a context of {len(key.context)}")
    if (flaw := lineage_flaw(key, shape.tokens, header.lineage)) is not None:
        raise CorruptEntry(f"{where} holds KV of another address: {flaw}")
    expected = FIRST_LAYER + -(-shape.tokens // header.block) * shape.layers
    if len(header.checksums) != expected or expected > MOST_SECTIONS:  # before a list of as many is made
        raise CorruptEntry(f"{where} has {len(header.checksums):,} sections instead of {expected:,}")
    try:
        last = header.sections[-1]
    except ConfigError as error:
        raise made_by_a_newer_one(where, str(error)) from error
    if last.offset + last.padded != data_size:
        raise CorruptEntry(f"{where} holds {data_size} bytes after its header instead of {last.offset + last.padded}")


def _check_table(header: Header, told: list[Any], where: str) -> None:
    """Of version 1."""
    for section, (name, offset, size, _) in zip(header.sections, told, strict=True):
        if (section.name, section.offset, section.size) != (name, offset, size):
            raise CorruptEntry(f"{where} lists {name!r:.40}, where {section.name!r} belongs")


def _to_json(header: Header) -> dict[str, Any]:
    key, shape, lineage = header.key, header.shape, header.lineage
    return {
        "fingerprint": key.fingerprint,
        "system": key.system,
        "context": key.context,
        "history": key.history,
        "chunk": key.chunk,
        "border": key.border,
        "passes": [[one.rows.start, one.rows.end, one.behind] for one in lineage.passes],
        "seen": lineage.seen,
        "complete": lineage.complete,
        "lost": lineage.lost,
        "tokens": shape.tokens,
        "layers": shape.layers,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "dtype": next(name for name, dtype in _DTYPES.items() if dtype == shape.dtype),
        "codec": header.codec,
        "block": header.block,
        "lengths": header.lengths,
        "checksums": header.checksums,
    }


def _second_version(fields: dict[str, Any]) -> Header:
    shape, complete, lost = _shape(fields), fields["complete"], _names(fields["lost"])
    if not isinstance(complete, bool) or fields["border"] is None or len(lost) > MOST_LOST:
        raise TypeError(f"complete is {complete!r:.40}, border {fields['border']!r:.40}, and {len(lost)} codecs lost")
    passes = tuple(Pass(Span(_whole(start), _whole(end)), _names(behind)) for start, end, behind in fields["passes"])
    told = Lineage(passes, _names(fields["seen"]), complete, lost)
    lineage = told.rounded(*_losing(fields["codec"], shape.dtype))  # no writer makes a codec keep what it drops
    lengths, checksums = tuple(map(_whole, fields["lengths"])), _names(fields["checksums"])
    return Header(key_of(fields), lineage, shape, fields["codec"], lengths, _whole(fields["block"]), checksums)


def _first_version(fields: dict[str, Any]) -> Header:
    """A file of before losses were told says nothing of what its KV was computed over: its codec alone decides."""
    key, shape, lossless = key_of(fields), _shape(fields), fields.get("lossless", True)
    if not isinstance(lossless, bool):
        raise TypeError(f"lossless is {lossless!r:.40}")
    if fields["ids_hash"] != key.chunk:
        raise ValueError(f"it holds the ids of {fields['ids_hash']!r:.80}, and is named by {key.chunk!r}")
    if len(key.context) > MOST_TOLD:
        raise ValueError(f"a context of {len(key.context):,} chunks")
    losing = _losing(fields["codec"], shape.dtype)
    lineage = untold_lineage(key, shape.tokens).rounded(*(losing if lossless or losing else [_UNTOLD]))
    lengths = tuple(map(_whole, fields["lengths"]))
    checksums = _names([told for _, _, _, told in fields["sections"]])
    for _, offset, size, _ in fields["sections"]:
        _whole(offset), _whole(size)
    return Header(key, lineage, shape, fields["codec"], lengths, shape.tokens, checksums)


def _shape(fields: dict[str, Any]) -> KVShape:
    layers, kv_heads, tokens, head_dim = (_whole(fields[name]) for name in ("layers", "kv_heads", "tokens", "head_dim"))
    return KVShape(layers, kv_heads, tokens, head_dim, _DTYPES[fields["dtype"]])


def _whole(told: object) -> int:
    if type(told) is not int or not 0 <= told <= _MOST:
        raise ValueError(f"{told!r} is no count")
    return told


def _names(told: object) -> tuple[str, ...]:
    if not are_names(told):
        raise ValueError(f"{told!r:.80} is no list of names")
    return tuple(cast("list[str]", told))


def _losing(codec: object, dtype: torch.dtype) -> list[str]:
    """What a codec rounds; one that is unknown here is refused later."""
    if not isinstance(codec, str):
        raise TypeError(f"codec is {codec!r:.40}")
    try:
        found = stored_codec(codec)
    except ConfigError:
        return []
    return [] if found.lossless(dtype) else [found.name]
