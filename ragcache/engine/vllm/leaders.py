"""Of requests for the same link one makes it; the others wait, and find it in vLLM's prefix cache."""

from __future__ import annotations

from ragcache.engine.vllm.hashing import LinkName


class Leaders:
    """Those that make a link now."""

    def __init__(self, shares: bool):
        """`shares`: vLLM's prefix cache is on."""
        self._shares = shares
        self._by_link: dict[bytes, str] = {}

    @property
    def names(self) -> set[str]:
        return set(self._by_link.values())

    def free(self, request: str, name: LinkName) -> bool:
        """Whether nobody else makes this link."""
        return not self._shares or self._by_link.get(name.whole, request) == request

    def lead(self, request: str, name: LinkName) -> None:
        self._by_link.setdefault(name.whole, request)

    def done(self, request: str) -> None:
        """Its link is in the prefix cache, or will never be: others need not wait for it any more."""
        self._by_link = {link: leader for link, leader in self._by_link.items() if leader != request}
