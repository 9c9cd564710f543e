"""What stands around the texts of a prompt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """The fixed strings around the texts. Cached KV belongs to them: after a change, documents are computed again."""

    before_passages: str = "Documents:\n\n"  # at the head of the user's turn
    before_chunk: str = ""
    after_chunk: str = "\n\n"
    before_question: str = "Question: "
    after_question: str = ""
    no_passages: str = "(No excerpt was found.)\n\n"  # in the place of the chunks
