"""Codecs by name."""

from __future__ import annotations

from collections.abc import Callable

from ragcache.errors import ConfigError
from ragcache.store.codec.base import Codec, KVShape
from ragcache.store.codec.int4 import Int4Codec
from ragcache.store.codec.int8 import Int8Codec, WideInt8Codec
from ragcache.store.codec.raw import Bf16Codec, RawCodec

__all__ = ["CODECS", "Codec", "KVShape", "open_codec", "stored_codec"]

CODECS: dict[str, Callable[[], Codec]] = {"raw": RawCodec, "bf16": Bf16Codec, "int8": Int8Codec, "int4": Int4Codec}
_STORED = {codec.stored: codec for codec in (WideInt8Codec(), *(make() for make in CODECS.values()))}


def open_codec(name: str) -> Codec:
    if name not in CODECS:
        raise ConfigError(f"unknown codec {name!r}: choose from {', '.join(CODECS)}")
    return CODECS[name]()


def stored_codec(stored: str) -> Codec:
    """By what a file says."""
    if stored not in _STORED:
        raise ConfigError(f"unknown codec {stored!r:.80}: this version reads {', '.join(_STORED)}")
    return _STORED[stored]
