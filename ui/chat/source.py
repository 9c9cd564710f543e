"""A source beside the chat, with the passage that an answer stands on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.client.connection import ServerConnection


def show_source(
    connection: ServerConnection, collection: str, citations: Sequence[Mapping[str, Any]], number: int, at: int
) -> None:
    """The citation `at` (from 0) of the answer `number`; buttons and keys lead to the ones beside it."""
