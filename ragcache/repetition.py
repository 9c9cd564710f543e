"""An answer that says the same over and over: small models fall into it, and never get out again.

It is seen by tokens alone, so on every engine alike. What texts repeat with reason is short (a ruler of a table, a line
of dashes) or not for long (rows of zeros), so a repetition counts by its length in tokens whatever its period is, and a
long one by how often it comes. docs/log.md has what these numbers find in answers and in texts.
"""

from __future__ import annotations

from collections import deque

LONGEST_PERIOD = 64  # tokens: two or three sentences
FEWEST_TOKENS = 128  # of all repeats together
FEWEST_TIMES = 4


class Repetition:
    """Of one answer, which it is given token by token: it remembers the last 64 of them, and looks at each once."""

    def __init__(self) -> None:
        self._last: deque[int] = deque(maxlen=LONGEST_PERIOD)  # newest first
        self._alike = [0] * LONGEST_PERIOD  # by period: how many of the last tokens are those one period before

    def add(self, token: int) -> bool:
        """Whether the answer ends in a repetition with this token."""
        for place, before in enumerate(self._last):
            self._alike[place] = self._alike[place] + 1 if before == token else 0
        self._last.appendleft(token)
        return any(alike and alike + period >= least(period) for period, alike in enumerate(self._alike, start=1))


def least(period: int) -> int:
    """Tokens that make a repetition of this period."""
    return max(FEWEST_TOKENS, FEWEST_TIMES * period)
