"""What the RAM tier knows of what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ragcache.types import Variant


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
