"""What every prompt says around its texts, by which its KV is known before anything that makes prompts is imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """The strings around the texts of a prompt. No settings, since cached KV belongs to them."""

    before_passages: str = "Documents:\n\n"  # at the head of the user's turn
    before_chunk: str = ""
    after_chunk: str = "\n\n"
    before_question: str = "Question: "
    after_question: str = ""
    no_passages: str = "(No excerpt was found.)\n\n"  # in the place of the chunks
