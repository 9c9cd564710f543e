"""How large a cache file will be, told before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from ragcache.address import MOST_SEEN
from ragcache.store.codec import KVShape, open_codec
from ragcache.store.entry import at_rest
from ragcache.store.format import BLOCK, Header, pack_header, padded, section_sizes
from ragcache.types import Lineage, Pass, Span, VariantKey

_DIGEST, _CHECKSUM = "0" * 64, "0" * 16


def entry_nbytes(shape: KVShape, codec: str, system: int, context: Sequence[int], *, seen: int = 0) -> int:
    """Of a variant behind a System of so many tokens and chunks of so many; `seen` says how many chunks had a part in
    it, beside these those that they had seen. Raises ConfigError for an unknown codec.
    """
    lengths = (system, *context)
    names = (_DIGEST,) * len(context)
    key = VariantKey(_DIGEST, _DIGEST, names, _DIGEST, _DIGEST if seen > len(context) else "")
    told = (_DIGEST,) * min(max(seen, len(context)), MOST_SEEN)
    lineage = Lineage((Pass(Span(0, shape.tokens), names),), told, seen <= MOST_SEEN)
    kept = at_rest(open_codec(codec), key, lineage)
    if not kept.lossless(shape.dtype):
        lineage = lineage.rounded(codec)
    sizes = [size for _, size in section_sizes(shape, kept.name, lengths, BLOCK)]
    header = Header(key, lineage, shape, kept.name, lengths, BLOCK, (_CHECKSUM,) * len(sizes))
    return len(pack_header(header)) + sum(map(padded, sizes))
