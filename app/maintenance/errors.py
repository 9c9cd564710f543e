from ragcache.errors import RagcacheError


class MaintenanceError(RagcacheError):
    """What an operator asked for cannot be done now, or is not there."""
