"""Codecs by name."""

from __future__ import annotations

from collections.abc import Callable

from ragcache.errors import ConfigError
from ragcache.store.codec.base import Codec, KVShape
from ragcache.store.codec.int4 import Int4Codec
from ragcache.store.codec.int8 import Int8Codec
from ragcache.store.codec.raw import Bf16Codec, RawCodec

__all__ = ["CODECS", "Codec", "KVShape", "open_codec"]

CODECS: dict[str, Callable[[], Codec]] = {"raw": RawCodec, "bf16": Bf16Codec, "int8": Int8Codec, "int4": Int4Codec}


def open_codec(name: str) -> Codec:
    if name not in CODECS:
        raise ConfigError(f"unknown codec {name!r}: choose from {', '.join(CODECS)}")
    return CODECS[name]()
