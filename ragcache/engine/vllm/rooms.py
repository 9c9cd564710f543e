"""The workers' memory for prompts whose caches are loaded. The scheduler's side lends it, so that all ranks agree."""

from __future__ import annotations

from collections.abc import Callable


class Rooms:
    """Of one rank, at most `nbytes` together, or a single one that is larger."""

    def __init__(self, nbytes: int, token_bytes: int):
        self._nbytes, self._token_bytes = nbytes, token_bytes
        self._held: dict[str, int] = {}
        self.short = False  # somebody was refused, and nobody was lent one since

    @property
    def nbytes(self) -> int:
        return sum(self._held.values())

    def lend(self, request: str, tokens: int) -> bool:
        """Whether there is room. Whoever is refused comes first next time, or many small ones would starve it."""
        needed = tokens * self._token_bytes
        self.short = bool(self._held) and self.nbytes + needed > self._nbytes
        if not self.short:
            self._held[request] = needed
        return not self.short

    def take_back(self, needed: Callable[[str], bool]) -> tuple[str, ...]:
        """From all requests that do not need theirs any more -> these."""
        done = tuple(request for request in self._held if not needed(request))
        for request in done:
            del self._held[request]
        return done
