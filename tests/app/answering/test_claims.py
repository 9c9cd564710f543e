"""What of an answer is judged at all: sentences that claim something, found in its Markdown."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.answering.claims import JUDGED, MOST, claims

ANSWER = """# The tower

Sure, here is the answer:

The tower was designed by **Margaret Aldous**. It goes on
over lines. Why?

1. First item. It has two sentences.
2. **An item** of 1.5 metres
   which goes on.
   - Nested.

> A quoted line.

```
code is no claim.
```

| name | age |
|---|---|
| Ada | 12 |

Das ist 3,5 m hoch. 塔高38米。灯光闪烁。 هذا منارة. هل تعرف؟
"""


def told(text: str) -> list[str]:
    return [text[start:end] for start, end in claims(text)]


def test_sentences_are_found_in_markdown() -> None:
    assert told(ANSWER) == [
        "The tower was designed by **Margaret Aldous**.",
        "It goes on\nover lines.",
        "First item.",
        "It has two sentences.",
        "An item** of 1.5 metres\n   which goes on.",
        "Nested.",
        "A quoted line.",
        "Ada | 12",
        "Das ist 3,5 m hoch.",
        "塔高38米。",
        "灯光闪烁。",
        "هذا منارة.",
    ]


@pytest.mark.parametrize(
    "text", ["", "Why?", "ምን ነው፧", "Is it so?**", "Here are the steps:", "I don't know.", "...", "Gern!"]
)
def test_what_claims_nothing_is_left_out(text: str) -> None:
    assert told(text) == []


@given(some.text(alphabet="ab.|-`>#*1) \n\r\tü中ع", max_size=80))
def test_spans_ascend_and_stay_within_whatever_the_text(text: str) -> None:
    spans = claims(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert spans == sorted(spans)
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))


@pytest.mark.parametrize("text", ["- a b\n", "A tower stands. ", "> ", "| a |\n|---|\n", "`", "1) ", "\n"])
def test_long_texts_are_judged_up_to_a_bound(text: str) -> None:
    spans = claims(text * (2 * JUDGED // len(text)))
    assert len(spans) <= MOST
    assert not spans or spans[-1][1] <= JUDGED
