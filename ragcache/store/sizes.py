"""How large a cache file will be, told before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from ragcache.store.codec import KVShape, open_codec
from ragcache.store.format import Header, Section, pack_header, padded, section_sizes
from ragcache.types import VariantKey

_DIGEST, _CHECKSUM = "0" * 64, "0" * 16


def entry_nbytes(shape: KVShape, codec: str, system: int, context: Sequence[int], *, history: bool = False) -> int:
    """Of a variant behind a System of so many tokens and chunks of so many; `history` says whether these have seen
    more than that. Raises ConfigError for an unknown codec.
    """
    lengths = (system, *context)
    sections, offset = [], 0
    for name, size in section_sizes(shape, codec, lengths):
        sections.append(Section(name, offset, size, _CHECKSUM))
        offset += padded(size)
    key = VariantKey(_DIGEST, _DIGEST, (_DIGEST,) * len(context), _DIGEST, _DIGEST if history else "")
    lossless = open_codec(codec).lossless(shape.dtype)
    return len(pack_header(Header(key, _DIGEST, shape, codec, lossless, lengths, tuple(sections)))) + offset
