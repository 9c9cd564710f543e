"""A conversation as far as it is shown: its end, or all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]


@dataclass(frozen=True)
class ShownConversation:
    """A message's number is its place in the conversation, which stands in the page's address."""

    messages: Sequence[Message]
    earlier: int  # messages before

    @property
    def next(self) -> int:
        """The number of what is said next."""
        return self.earlier + len(self.messages)

    @property
    def newest(self) -> int | None:
        return int(self.messages[-1]["id"]) if self.messages else None

    @property
    def seen(self) -> int | None:
        """The newest, for a server that asks for it; one of before keeps no notes of answers either."""
        return self.newest if self.messages and "notes" in self.messages[-1] else None

    @property
    def last_question(self) -> int:
        """How many of `messages` stand before it; all, where there is none."""
        asked = (place for place in reversed(range(len(self.messages))) if self.messages[place]["role"] == "user")
        return next(asked, len(self.messages))

    @property
    def last_exchange(self) -> Sequence[Message]:
        """From the last question on."""
        return self.messages[self.last_question :]

    def kept(self, instead_of: int | None) -> int:
        """How many of `messages` stand before the question whose place is taken."""
        places = (place for place, one in enumerate(self.messages) if one["id"] == instead_of)
        return next(places, len(self.messages))

    def message(self, number: int) -> Message | None:
        return self.messages[number - self.earlier] if self.earlier <= number < self.next else None
