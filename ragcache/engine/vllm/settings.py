"""How requests are linked, as whoever starts vLLM decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from ragcache.errors import ConfigError
from ragcache.policy.gate import LinkWhen


@dataclass(frozen=True)
class LinkSettings:
    linker: str = "auto"  # of requests that name none
    step_tokens: int = 32  # of all prompts, computed per step while others run: their next token waits
    least_tokens: int = 16  # of linked ones, even when other prefills take the whole budget, or they would starve us
    load_timeout_s: float = 5.0  # of reading, from when it begins; then what is not read is computed
    room_bytes: int = 1 << 30  # of each rank, for the K and V of prompts that load; others wait for their turn
    link_when: LinkWhen = "sooner"
    share_exact: bool = True  # KV that is a plain prefill's may enter vLLM's prefix cache for all; false: none does
    captures: bool = False  # whether requests of clients may store KV

    def __post_init__(self) -> None:
        for name in ("share_exact", "captures"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: choose true or false")
        if self.link_when not in (choices := get_args(LinkWhen)):
            raise ConfigError(f"link_when is {self.link_when!r}: choose {' or '.join(choices)}")
