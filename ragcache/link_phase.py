"""How far a prompt is on its way from cached chunks to KV."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    NEW = auto()
    LOADING = auto()
    CHOOSE = auto()  # all is placed that will be
    PROBE = auto()  # to be ordered
    PROBING = auto()
    COMPUTE = auto()
    STORE = auto()  # what a capture has computed
    DONE = auto()
