"""What both indexes read of the log of what is gone, which nobody shortens."""

from __future__ import annotations

from tests.retriever.chunks import grow, source_of
from tests.retriever.test_derived import Make, everything, live, make, opened

__all__ = ["make"]


def test_the_log_of_what_is_gone_is_read_from_its_end_and_in_pages(make: Make) -> None:
    """However long it is: nobody shortens it."""
    source = source_of(1)
    behind = opened(make, None, source)
    for seed in range(3):
        grow(source, 3000, seed=seed)
        source.retire(live(source))
    grow(source, 3, seed=4)
    read: list[int] = []
    retired = source.retired

    def watched(after: int, *most: int) -> list[tuple[int, int]]:
        page = retired(after, *most)
        read.append(len(page))
        return page

    source.retired = watched  # type: ignore[method-assign]  # to see how much is read
    index = opened(make, None, source)
    assert not any(read), "a new one holds nothing that is gone"
    assert everything(index) == live(source) and index.position == source.position()
    behind.catch_up(source)
    assert sum(read) == 9001 and max(read) <= 4096
    assert everything(behind) == live(source) and behind.position == source.position()


def test_what_goes_while_a_new_one_is_made_is_not_kept(make: Make) -> None:
    source = source_of(10)
    source.retire([1, 2])
    added = source.added

    def going(after: int, batch: int = 4096) -> object:
        for one in added(after, batch):
            yield one
            source.retire(one[0][:3])

    source.added = going  # type: ignore[method-assign,assignment]  # as another program does it
    index = opened(make, None, source)
    assert everything(index) == live(source) == set(range(6, 11))
