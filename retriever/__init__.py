"""From a question to chunks: embedding, vector and keyword indexes, fusion, reranking."""

from ragcache.errors import RagcacheError


class RetrieverError(RagcacheError):
    """An embedding model or an index that cannot be used."""

    status = 503
