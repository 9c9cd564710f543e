"""Of requests for the same link one makes it; the others wait, and find it in vLLM's prefix cache."""

from __future__ import annotations

from ragcache.engine.vllm.block_names import LinkName, Names


class Leaders:
    """Those that make a link now."""

    def __init__(self) -> None:
        self._names: dict[str, Names] = {}  # of requests that are to be linked
        self._making: dict[bytes, str] = {}  # what is made, by whom
        self._made: dict[str, bytes] = {}  # the other way round

    @property
    def names(self) -> set[str]:
        return {*self._making.values(), *self._names}

    def know(self, request: str, names: Names, link: LinkName) -> None:
        """It is to be linked."""
        names.link(link)
        self._names[request] = names

    def free(self, request: str, computed: int) -> bool:
        """Whether nobody else makes what it lacks, where vLLM has so many positions of it."""
        if not self._names[request].found(computed):
            return False  # until vLLM has looked again
        share = self._names[request].share
        return share is None or computed >= share.tokens or self._making.get(share.key, request) == request

    def lead(self, request: str, computed: int) -> None:
        share = self._names[request].share
        if share is not None and computed < share.tokens and share.key not in self._making:
            self.done(request)
            self._making[share.key], self._made[request] = request, share.key

    def done(self, request: str) -> None:
        """Its link is in the prefix cache, or will never be: others need not wait for it any more."""
        key = self._made.pop(request, None)
        if key is not None:
            del self._making[key]

    def give_up(self, request: str, computed: int) -> None:
        """It is not to be linked after all, where vLLM has so many positions of it."""
        self._names[request].give_up(computed)
        self.gone(request)

    def gone(self, request: str) -> None:
        self.done(request)
        self._names.pop(request, None)
