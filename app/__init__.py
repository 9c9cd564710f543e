"""The application: settings, composition, documents, answers and its ways in (CLI, HTTP).

from app import RagPipeline, Settings
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.answering.pipeline import RagPipeline
    from app.settings import Settings

__all__ = ["RagPipeline", "Settings"]


def __getattr__(name: str) -> object:
    """Loaded on first use: the command line imports this package before it knows what it needs."""
    if name not in __all__:
        raise AttributeError(f"module 'app' has no attribute {name!r}")
    return getattr(import_module("app.answering.pipeline" if name == "RagPipeline" else "app.settings"), name)
