"""Every error that ragcache raises for its users, in one tree.

A message says what is wrong, with the value that is wrong, and what to do about it.
"""


class RagcacheError(Exception):
    """Base of all errors meant for users; anything else is a bug."""


class ConfigError(RagcacheError):
    """A setting, flag or name that cannot be used."""


class ModelError(RagcacheError):
    """A model that cannot be found, read or run by this engine."""


class PromptError(RagcacheError):
    """A prompt that cannot be answered: too long, malformed, or holding an empty chunk."""


class StoreError(RagcacheError):
    """The cache folder cannot be used (not writable, full)."""


class CorruptEntry(StoreError):
    """A cache file whose bytes are not what was written: truncated, flipped, or of another format."""


class ForeignEntry(StoreError):
    """A sound cache file that belongs to another engine, model or chunk."""
