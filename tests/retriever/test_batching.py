from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retriever.encoder import batches


@given(st.lists(st.integers(0, 600), max_size=60), st.integers(1, 2000))
def test_batches_hold_every_text_once_within_the_budget(lengths: list[int], budget: int) -> None:
    made = list(batches(lengths, budget))
    assert sorted(place for batch in made for place in batch) == list(range(len(lengths)))
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= budget
    longest = [max(lengths[place] for place in batch) for batch in made]
    assert longest == sorted(longest, reverse=True)
