"""FAISS, imported when a structure is made. Its own type hints know but part of it, so none of them are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from retriever import RetrieverError


def load_faiss() -> Any:
    try:
        return import_module("faiss")
    except ImportError as error:
        raise RetrieverError(
            "FAISS is not installed: pip install 'ragcache-kv[cpu]', or 'ragcache-kv[gpu]' for NVIDIA GPUs"
        ) from error
