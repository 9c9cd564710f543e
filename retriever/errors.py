"""What retrieval raises for its users. The package stands alone, so it has its own."""


class RetrieverError(RuntimeError):
    """An embedding model or an index that cannot be used."""
