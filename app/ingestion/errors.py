"""What stops an ingest as a whole. A file that cannot be read does not: it is a Failure in the result."""

from ragcache.errors import RagcacheError


class IngestError(RagcacheError):
    """An ingest that cannot start, or cannot go on."""
