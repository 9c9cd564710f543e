"""A variant as the bytes of a cache file, and back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy

import numpy as np
import torch

from ragcache.errors import CorruptEntry, ForeignEntry
from ragcache.store.codec import Codec, KVShape, open_codec
from ragcache.store.format import (
    FIRST_LAYER,
    Header,
    Section,
    checksum,
    pack_header,
    padded,
    section_sizes,
    unpack_header,
)
from ragcache.store.frame import Fetch
from ragcache.types import Profile, Variant, VariantKey, ids_hash


def pack(variant: Variant, codec: Codec) -> list[memoryview]:
    """The whole file, in pieces to be written one after the other."""
    shape, lengths = KVShape.of(variant.k), variant.profile.lengths
    assert variant.v.shape == variant.k.shape, (variant.k.shape, variant.v.shape)
    assert shape.tokens == len(variant) > 0, (shape, len(variant))
    sizes = section_sizes(shape, codec.name, lengths)
    rows = codec.encode(variant.k, variant.v)  # uint8 [layers, layer_nbytes]
    rows = torch.nn.functional.pad(rows, (0, padded(rows.shape[1]) - rows.shape[1]))
    layers = [row.numpy().data for row in rows]
    blobs = [_padded(_profile_bytes(variant.profile)), _padded(np.asarray(variant.ids, "<i4").tobytes()), *layers]
    lossless = variant.lossless and codec.lossless(shape.dtype)
    header = Header(variant.key, ids_hash(variant.ids), shape, codec.name, lossless, lengths, _table(sizes, blobs))
    return [memoryview(pack_header(header)), *blobs]


class EntryReader:
    """Reads one cache file. Every method raises CorruptEntry when the bytes it needs are not what was written."""

    def __init__(self, fetch: Fetch, file_size: int, where: str) -> None:
        self._fetch = fetch
        self._where = where
        self.file_size = file_size
        self.header, self._start = unpack_header(fetch, file_size, where)

    @classmethod
    def parts(cls, fd: int, where: str) -> EntryReader:
        """Reads only what is asked for."""
        return cls(lambda offset, size: _read(fd, offset, size, where), os.fstat(fd).st_size, where)

    def whole(self, fd: int) -> EntryReader:
        """Reads the file at once, now that its header fits it; the tensors given out then share that memory where the
        codec allows.
        """
        data = _read(fd, 0, self.file_size, self._where)
        reader = copy(self)
        reader._fetch = lambda offset, length: data[offset : offset + length]
        return reader

    def expect(self, key: VariantKey) -> None:
        """Raises ForeignEntry unless the file holds that variant."""
        found = self.header.key
        for name in ("fingerprint", "system", "chunk", "context", "history"):
            here, asked = getattr(found, name), getattr(key, name)
            if here != asked:
                raise ForeignEntry(f"{self._where} holds the KV of another {name}: {here!r} instead of {asked!r}")

    def variant(self, heads: slice | None = None) -> Variant:
        """`heads`: those to keep of K and V, the others' memory goes."""
        k, v = self.layers(0, self.header.shape.layers)
        if heads is not None:
            k, v = (part[:, heads].clone(memory_format=torch.contiguous_format) for part in (k, v))
        return Variant(self.header.key, self.ids(), k, v, self.profile(), self.header.lossless)

    def ids(self) -> tuple[int, ...]:
        section = self.header.sections[1]
        ids = tuple(np.frombuffer(self._checked(section)[: section.size], "<i4").tolist())
        if ids_hash(ids) != self.header.ids_hash:
            raise CorruptEntry(f"the token ids of {self._where} do not match their hash {self.header.ids_hash}")
        return ids

    def profile(self) -> Profile:
        section = self.header.sections[0]
        # A copy: a profile outlives the KV it came with, and must not keep the file's memory.
        values = np.frombuffer(self._checked(section)[: section.size], "<f4").astype(np.float32)
        if not (values >= 0).all() or not np.isfinite(values).all():
            raise CorruptEntry(f"the profile of {self._where} holds what is no attention")
        rows = values.reshape(len(self.header.lengths) + 2, self.header.shape.tokens)
        return Profile(inter=rows[:-2], intra=rows[-2], received=rows[-1], lengths=self.header.lengths)

    def layers(self, first: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of the layers [first, end), each [end - first, kv_heads, n, head_dim]."""
        sections = self.header.sections[FIRST_LAYER + first : FIRST_LAYER + end]
        size, stride = sections[0].size, sections[0].padded
        data = self._fetch(self._start + sections[0].offset, stride * len(sections))
        for index, section in enumerate(sections):
            self._check(section, data[index * stride : (index + 1) * stride])
        rows = torch.frombuffer(data, dtype=torch.uint8).view(len(sections), stride)[:, :size]
        return open_codec(self.header.codec).decode(rows, self.header.shape.with_layers(len(sections)))

    def _checked(self, section: Section) -> memoryview:
        data = self._fetch(self._start + section.offset, section.padded)
        self._check(section, data)
        return data

    def _check(self, section: Section, data: memoryview) -> None:
        if checksum(data) != section.checksum:
            raise CorruptEntry(f"{section.name} of {self._where} does not match its checksum")


def _read(fd: int, offset: int, size: int, where: str) -> memoryview:
    # Torch's allocator aligns to 64 bytes, and with it every section.
    data = torch.empty(size, dtype=torch.uint8).numpy().data
    done = 0
    while done < size:
        got = os.preadv(fd, [data[done:]], offset + done)
        if got == 0:
            raise CorruptEntry(f"{where} is cut short: it ends at byte {offset + done}")
        done += got
    return data


def _profile_bytes(profile: Profile) -> bytes:
    """Rows of inter, then intra, then received; float32, a thousandth of the KV."""
    return np.vstack([profile.inter, profile.intra, profile.received]).astype("<f4").tobytes()


def _padded(data: bytes) -> memoryview:
    return memoryview(data.ljust(padded(len(data)), b"\0"))


def _table(sizes: Sequence[tuple[str, int]], blobs: Sequence[memoryview]) -> tuple[Section, ...]:
    sections, offset = [], 0
    for (name, size), blob in zip(sizes, blobs, strict=True):
        assert len(blob) == padded(size), (name, len(blob), size)
        sections.append(Section(name, offset, size, checksum(blob)))
        offset += len(blob)
    return tuple(sections)
