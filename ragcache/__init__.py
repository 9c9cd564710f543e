"""RAGCache's core: chunks whose KV is computed once and linked into every prompt that retrieves them.

It takes token ids, never text, and knows nothing of documents, retrieval or llama-index.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragcache.cache import ChunkCache
    from ragcache.sampling import Sampling
    from ragcache.types import Chunk, Span, System, Text

__all__ = ["Chunk", "ChunkCache", "Sampling", "Span", "System", "Text"]
_ELSEWHERE = {"ChunkCache": "ragcache.cache", "Sampling": "ragcache.sampling"}


def __getattr__(name: str) -> object:
    """Loaded on first use: `import ragcache.errors` must not bring torch, or the command line would take seconds."""
    if name not in __all__:
        raise AttributeError(f"module 'ragcache' has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE.get(name, "ragcache.types")), name)
