"""Where chunks stand in a prompt."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from app.answering import Retrieved

T = TypeVar("T", bound=Hashable)

DocumentPlace = tuple[int | str, int]  # a document, and where a chunk begins in it


def as_they_stood(placed: Sequence[Retrieved], last: Sequence[DocumentPlace]) -> list[Retrieved]:
    """What comes again first, in the order of the `last` prompt: its front is cached as it stood."""
    before = _places(last)
    return sorted(placed, key=lambda one: before.get((one.document_id, one.start), len(before)))


def in_prompt_order(found: Sequence[Retrieved], last: Sequence[int | str] = ()) -> list[Retrieved]:
    """Document by document in the order of the collection, each in its own; the documents of the last turn's prompt
    (`last`) come first.

    Two things make a stored chunk cheap to reuse. What its KV was computed behind in front of it: its neighbours in
    the document, so a document is never torn apart, not even to keep single chunks of the last turn where they were;
    and near texts, which stand before it in the collection. And the place right behind System, where the variant that
    was captured alone is exact: so the document that led the last prompt leads again, and its first chunk, which had
    that place, mostly has it again. Where the other chunks stand costs nothing, since K is stored unrotated and turned
    to any position.
    """
    before = _places(last)
    # Numbers of the catalog grow; names of llama-index say nothing, so there the better ranked document comes first.
    rank = _places(one.document_id for one in found)

    def place(one: Retrieved) -> tuple[int, bool, float, int, int]:
        document = one.document_id
        if document in before:
            return (before[document], False, 0.0, 0, one.ordinal)
        number = document if isinstance(document, int) else rank[document]
        return (len(before), one.standing is None, one.standing or 0.0, number, one.ordinal)

    return sorted(found, key=place)


def _places(told: Iterable[T]) -> dict[T, int]:
    return {one: place for place, one in enumerate(dict.fromkeys(told))}
