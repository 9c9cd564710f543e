"""The file in which a vector store outlives its program: a head and a node a line, there whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from retriever import RetrieverError
from retriever.generations import TEMPORARY


def write_beside(path: Path, text: str) -> None:
    """A link is followed, so what it points to is replaced. Raises OSError, and leaves the older file as it was."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_lines(lines: Iterable[bytes], where: str) -> tuple[int, list[dict[str, Any]]]:
    """The dimension and the nodes as they were written. Raises RetrieverError when some of it is missing."""
    try:
        parsed = [json.loads(line) for line in lines if line.strip()]
        head, nodes = parsed[0], parsed[1:]
        dimension, wanted = int(head["dimension"]), int(head.get("nodes", len(nodes)))
        whole = len(nodes) == wanted and all({"embedding", "node"} <= one.keys() for one in nodes)
    except (ValueError, LookupError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise RetrieverError(
            f"{where} is torn or no file of a vector store: take an older copy of it, or index the documents again"
        )
    return dimension, nodes
