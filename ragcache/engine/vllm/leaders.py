"""Of requests for the same link one makes it; the others wait, and find it in vLLM's prefix cache."""

from __future__ import annotations

from ragcache.engine.vllm.hashing import Share


class Leaders:
    """Those that make a link now."""

    def __init__(self) -> None:
        self._shares: dict[str, Share] = {}  # of requests that live
        self._by_key: dict[bytes, str] = {}

    @property
    def names(self) -> set[str]:
        return {*self._by_key.values(), *self._shares}

    def know(self, request: str, share: Share | None) -> None:
        """What of its link others may use."""
        if share is not None:
            self._shares[request] = share

    def free(self, request: str, computed: int) -> bool:
        """Whether nobody else makes what it lacks, where vLLM has so many positions of it."""
        share = self._shares.get(request)
        return share is None or computed >= share.tokens or self._by_key.get(share.key, request) == request

    def lead(self, request: str, computed: int) -> None:
        share = self._shares.get(request)
        if share is not None and computed < share.tokens:
            self._by_key.setdefault(share.key, request)

    def done(self, request: str) -> None:
        """Its link is in the prefix cache, or will never be: others need not wait for it any more."""
        share = self._shares.get(request)
        if share is not None and self._by_key.get(share.key) == request:
            del self._by_key[share.key]

    def gone(self, request: str) -> None:
        self.done(request)
        self._shares.pop(request, None)
