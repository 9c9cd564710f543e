"""What the RAM tier knows of what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from ragcache.types import Variant, VariantKey

Place: TypeAlias = "tuple[str, str]"


def place_of(key: VariantKey) -> Place:
    """Of a chunk, behind whatever System segment and of whatever engine."""
    return key.border, key.chunk


@dataclass
class Resident:
    variant: Variant
    nbytes: int  # of memory that it keeps alive
    used: int
    came: int


class RoomFound(Enum):
    THERE = auto()
    NONE = auto()
    DECLINED = auto()  # what would go is worth more
