"""A variant as the bytes of a cache file, and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import copy

import numpy as np
import torch

from ragcache.address import MOST_SEEN
from ragcache.errors import CorruptEntry, ForeignEntry
from ragcache.store.base import KV, OpenEntry
from ragcache.store.codec import Codec, KVShape, open_codec, stored_codec
from ragcache.store.format import (
    FIRST_LAYER,
    Header,
    Section,
    block_for,
    blocks_of,
    checksum,
    pack_header,
    padded,
    section_sizes,
    unpack_header,
)
from ragcache.store.frame import Fetch
from ragcache.store.held import copied
from ragcache.store.memory import room
from ragcache.types import KVForm, Lineage, Origin, Pass, Profile, Span, Variant, VariantInfo, VariantKey, ids_hash

LOSSLESS = "raw"
Guard = Callable[[], AbstractContextManager[None]]
_DIGEST, _CHECKSUM = "0" * 64, "0" * 16  # of any, as long


def at_rest(codec: Codec, key: VariantKey, lineage: Lineage) -> Codec:
    """What keeps a variant in a store with this codec. KV that a prefill of a prompt's first segments would hold stays
    as it is: others may share it only if nothing of it was lost.
    """
    return codec if key.history or lineage.lost else open_codec(LOSSLESS)


def pack(variant: Variant, codec: Codec) -> tuple[Header, list[memoryview]]:
    """The whole file, in pieces to be written one after the other, and its header, which is the first of them."""
    shape, lengths = KVShape.of(variant.k), variant.profile.lengths
    assert variant.v.shape == variant.k.shape, (variant.k.shape, variant.v.shape)
    assert shape.tokens == len(variant) > 0, (shape, len(variant))
    assert ids_hash(variant.ids) == variant.key.chunk, variant.key
    codec = at_rest(codec, variant.key, variant.lineage)
    blobs = [_padded(_profile_bytes(variant.profile)), _padded(np.asarray(variant.ids, "<i4").tobytes())]
    block = block_for(shape.tokens)
    for span in blocks_of(shape.tokens, block):
        tokens = slice(span.start, span.end)
        rows = codec.encode(variant.k[:, :, tokens], variant.v[:, :, tokens])  # uint8 [layers, layer_nbytes]
        rows = torch.nn.functional.pad(rows, (0, padded(rows.shape[1]) - rows.shape[1]))
        blobs += [row.numpy().data for row in rows]
    lineage = variant.lineage if codec.lossless(shape.dtype) else variant.lineage.rounded(codec.name)
    checksums = tuple(map(checksum, blobs))
    header = Header(variant.key, lineage, shape, codec.stored, lengths, block, checksums)
    assert [len(blob) for blob in blobs] == [section.padded for section in header.sections]
    return header, [memoryview(pack_header(header)), *blobs]


def body_nbytes(variant: Variant, codec: Codec) -> int:
    """Of the file that it would be, without its header, as far as is known before anything is encoded."""
    shape, codec = KVShape.of(variant.k), at_rest(codec, variant.key, variant.lineage)
    spans = blocks_of(shape.tokens, block_for(shape.tokens))
    blocks = (padded(codec.layer_nbytes(shape.with_tokens(len(one)))) for one in spans)
    return padded(variant.profile.nbytes) + padded(4 * shape.tokens) + shape.layers * sum(blocks)


class KnownForms:
    """Of the KV of engines, by fingerprint; "" is any engine."""

    def __init__(self) -> None:
        self._forms: dict[str, KVForm] = {}

    def know(self, form: KVForm, fingerprint: str) -> None:
        self._forms[fingerprint] = form

    def expect(self, header: Header, where: str) -> None:
        """Raises ForeignEntry for KV of another form."""
        found = header.shape.form
        expected = self._forms.get(header.key.fingerprint) or self._forms.get("", found)
        if found != expected:
            raise ForeignEntry(f"{where} holds KV of another form, {found} instead of {expected}")


class EntryReader:
    """Reads one cache file. Every method raises CorruptEntry when the bytes it needs are not what was written."""

    def __init__(self, fetch: Fetch, file_size: int, where: str, heads: slice | None = None) -> None:
        """`heads`: those of K and V to give out, the others' memory goes."""
        self._fetch, self._heads = fetch, heads
        self._where = where
        self.file_size = file_size
        self.header, self._start = unpack_header(fetch, file_size, where)

    @classmethod
    def parts(cls, fd: int, where: str, heads: slice | None = None) -> EntryReader:
        """Reads only what is asked for."""
        return cls(lambda offset, size: _read(fd, offset, size, where), os.fstat(fd).st_size, where, heads)

    @classmethod
    def held(cls, data: memoryview, where: str, heads: slice | None = None) -> EntryReader:
        """Of a file in memory, aligned as `_read` does it; the tensors given out may share it."""
        return cls(lambda offset, size: data[offset : offset + size], len(data), where, heads)

    def whole(self, fd: int) -> EntryReader:
        """Reads the file at once, now that its header fits it; the tensors given out then share that memory where the
        codec allows.
        """
        data = _read(fd, 0, self.file_size, self._where)
        reader = copy(self)
        reader._fetch = lambda offset, length: data[offset : offset + length]
        return reader

    def checked(self, fd: int) -> memoryview:
        """The file's bytes, all of which are what was written."""
        data = _read(fd, 0, self.file_size, self._where)
        for section in self.header.sections:
            start = self._start + section.offset
            self._check(section, data[start : start + section.padded])
        return data

    def expect(self, key: VariantKey) -> None:
        """Raises ForeignEntry unless the file holds that variant."""
        found = self.header.key
        for name in ("fingerprint", "system", "chunk", "context", "history", "border"):
            here, asked = getattr(found, name), getattr(key, name)
            if here != asked:
                raise ForeignEntry(f"{self._where} holds the KV of another {name}: {here!r} instead of {asked!r}")

    def variant(self) -> Variant:
        k, v = self.whole_kv()
        return Variant(self.header.key, self.ids(), k, v, self.profile(), self.header.lineage)

    def info(self, tier: str, level: int) -> VariantInfo:
        header, profile = self.header, self.profile()
        told = (header.shape.tokens, self.file_size, tier, profile, header.lineage.lossless, level)
        return VariantInfo(header.key, *told)

    def ids(self) -> tuple[int, ...]:
        section = self.header.sections[1]
        ids = tuple(np.frombuffer(self._checked(section)[: section.size], "<i4").tolist())
        if ids_hash(ids) != self.header.key.chunk:
            raise CorruptEntry(f"the token ids of {self._where} do not match their hash {self.header.key.chunk}")
        return ids

    def profile(self) -> Profile:
        section = self.header.sections[0]
        # A copy: a profile outlives the KV it came with, and must not keep the file's memory.
        values = np.frombuffer(self._checked(section)[: section.size], "<f4").astype(np.float32)
        if not (values >= 0).all() or not np.isfinite(values).all():
            raise CorruptEntry(f"the profile of {self._where} holds what is no attention")
        rows = values.reshape(len(self.header.lengths) + 2, self.header.shape.tokens)
        return Profile(inter=rows[:-2], intra=rows[-2], received=rows[-1], lengths=self.header.lengths)

    def whole_kv(self) -> KV:
        """[layers, kv_heads, n, head_dim]"""
        every, blocks = range(self.header.shape.layers), self.header.blocks
        if len(blocks) == 1:
            return self.kv(0, every)
        k, v = torch.empty((2, *self.shape), dtype=self.header.shape.dtype)
        for number, span in enumerate(blocks):
            self.kv_into(number, every, k[:, :, span.start : span.end], v[:, :, span.start : span.end])
        return k, v

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the K and V that it gives out."""
        shape = self.header.shape
        return shape.layers, len(range(shape.kv_heads)[self._heads or slice(None)]), shape.tokens, shape.head_dim

    def kv(self, block: int, layers: range) -> KV:
        """Of one block of tokens in some layers."""
        rows, shape = self._rows(block, layers)
        k, v = stored_codec(self.header.codec).decode(rows, shape)
        return (k, v) if self._heads is None else (copied(k[:, self._heads]), copied(v[:, self._heads]))

    def kv_into(self, block: int, layers: range, k: torch.Tensor, v: torch.Tensor) -> None:
        rows, shape = self._rows(block, layers)
        codec = stored_codec(self.header.codec)
        if self._heads is None:
            codec.decode_into(rows, shape, k, v)
        else:
            for place, part in zip((k, v), codec.decode(rows, shape), strict=True):
                place.copy_(part[:, self._heads])

    def _rows(self, block: int, layers: range) -> tuple[torch.Tensor, KVShape]:
        """As the codec left them."""
        header = self.header
        assert 0 <= layers.start < layers.stop <= header.shape.layers, layers
        assert layers.step == 1, layers
        assert 0 <= block < len(header.blocks), block
        start = FIRST_LAYER + block * header.shape.layers
        sections = header.sections[start + layers.start : start + layers.stop]
        size, stride = sections[0].size, sections[0].padded
        data = self._fetch(self._start + sections[0].offset, stride * len(sections))
        for index, section in enumerate(sections):
            self._check(section, data[index * stride : (index + 1) * stride])
        rows = torch.frombuffer(data, dtype=torch.uint8).view(len(sections), stride)[:, :size]
        return rows, header.shape.with_layers(len(sections)).with_tokens(len(header.blocks[block]))

    def _checked(self, section: Section) -> memoryview:
        data = self._fetch(self._start + section.offset, section.padded)
        self._check(section, data)
        return data

    def _check(self, section: Section, data: memoryview) -> None:
        if checksum(data) != section.checksum:
            raise CorruptEntry(f"{section.name} of {self._where} does not match its checksum")


class FileEntry(OpenEntry):
    """A cache file that is open. `guard` surrounds what is read of it, and `end` closes it."""

    def __init__(self, reader: EntryReader, fd: int, tier: str, guard: Guard, end: Callable[[], None]):
        self._reader, self._fd, self._guard, self._end = reader, fd, guard, end
        self.tier, self.nbytes, self.blocks = tier, reader.file_size, reader.header.blocks
        self.shape, self.dtype = reader.shape, reader.header.shape.dtype
        self._beside: tuple[tuple[int, ...], Profile] | None = None
        self._closed = False

    def origin(self) -> Origin:
        ids, _ = self._looked_at()
        return Origin(self._reader.header.key, ids, self._reader.header.lineage)

    def variant(self, read: KV | None = None) -> Variant:
        if read is not None:
            ids, profile = self._looked_at()
            return Variant(self._reader.header.key, ids, *read, profile, self._reader.header.lineage)
        with self._reading():
            return self._reader.whole(self._fd).variant()

    def _looked_at(self) -> tuple[tuple[int, ...], Profile]:
        """All that is beside K and V."""
        if self._beside is None:
            with self._reading():
                self._beside = self._reader.ids(), self._reader.profile()
        return self._beside

    def read(self, block: int, layers: range) -> KV:
        with self._reading():
            return self._reader.kv(block, layers)

    def read_into(self, block: int, layers: range, k: torch.Tensor, v: torch.Tensor) -> None:
        with self._reading():
            self._reader.kv_into(block, layers, k, v)

    def _reading(self) -> AbstractContextManager[None]:
        assert not self._closed, "its descriptor may be another file's by now"
        return self._guard()

    def close(self) -> None:
        self._closed = True
        with self._guard():
            self._end()


def _read(fd: int, offset: int, size: int, where: str) -> memoryview:
    data, done = room(size), 0
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


def entry_nbytes(shape: KVShape, codec: str, system: int, context: Sequence[int], *, seen: int = 0) -> int:
    """How large the file of a variant will be, told before anything is computed: behind a System of so many tokens and
    chunks of so many. `seen` says how many chunks had a part in it, beside these those that they had seen. Raises
    ConfigError for an unknown codec.
    """
    lengths = (system, *context)
    names = (_DIGEST,) * len(context)
    key = VariantKey(_DIGEST, _DIGEST, names, _DIGEST, _DIGEST if seen > len(context) else "")
    told = (_DIGEST,) * min(max(seen, len(context)), MOST_SEEN)
    lineage = Lineage((Pass(Span(0, shape.tokens), names),), told, seen <= MOST_SEEN)
    kept = at_rest(open_codec(codec), key, lineage)
    if not kept.lossless(shape.dtype):
        lineage = lineage.rounded(codec)
    block = block_for(shape.tokens)
    sizes = [size for _, size in section_sizes(shape, kept.stored, lengths, block)]
    header = Header(key, lineage, shape, kept.stored, lengths, block, (_CHECKSUM,) * len(sizes))
    return len(pack_header(header)) + sum(map(padded, sizes))
