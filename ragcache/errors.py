"""Every error that the project raises for its users, in one tree: its root, and what the engines raise.

A message says what is wrong, with the value that is wrong, and what to do about it.
"""

from typing import ClassVar


class RagcacheError(Exception):
    """Base of all errors meant for users, of every package; anything else is a bug."""

    status: ClassVar[int] = 500  # as HTTP counts them: 4xx is for whoever asked, 5xx for whoever runs it


class ConfigError(RagcacheError):
    """A setting, flag or name that cannot be used."""

    status = 400


class ModelError(RagcacheError):
    """A model that cannot be found, read or run by this engine."""

    status = 503


class PromptError(RagcacheError):
    """A prompt that cannot be answered: too long, malformed, or holding an empty chunk."""

    status = 400


class StoreError(RagcacheError):
    """The cache folder cannot be used (not writable, full)."""

    status = 507


class CorruptEntry(StoreError):
    """A cache file whose bytes are not what was written: truncated, flipped, or of another format."""


class ForeignEntry(StoreError):
    """A sound cache file that belongs to another engine, model or chunk."""


class NewerEntry(ForeignEntry):
    """One that a newer version has written, which may still want it."""
