"""What both indexes read of the log of what is gone, and what they do where a part of it is gone too."""

from __future__ import annotations

from pathlib import Path

import pytest

from retriever.memory_source import MemorySource
from retriever.source import Position
from tests.retriever.chunks import grow, source_of
from tests.retriever.test_derived import Make, everything, live, make, opened

__all__ = ["make"]


def test_the_log_of_what_is_gone_is_read_from_its_end_and_in_pages(make: Make) -> None:
    """However long it is."""
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


def shortened(source: MemorySource, kept: int) -> None:
    """The log has the newest alone."""
    retired, position = source.retired, source.position

    def late(after: int, most: int = 4096) -> list[tuple[int, int]]:
        return retired(max(after, position().retired - kept), most)

    source.retired = late  # type: ignore[method-assign]  # as a catalog has it


@pytest.mark.parametrize("kept", [1, 5, 40])
def test_who_has_missed_a_part_of_the_log_is_made_again(make: Make, tmp_path: Path, kept: int) -> None:
    """From its file as from memory, and nobody finds what is gone."""
    source = source_of(100)
    there, behind = opened(make, tmp_path, source), opened(make, None, source)
    assert there.save()
    source.retire(range(10, 40))
    grow(source, 5, seed=1)
    shortened(source, kept)
    for index in (there, behind, opened(make, tmp_path, source)):
        index.catch_up(source)
        assert everything(index) == live(source) and index.position == source.position()
    assert there.save() and everything(opened(make, tmp_path, source)) == live(source)


def test_it_is_held_against_a_source_that_comes_to_rest_later(make: Make) -> None:
    """One that changed without pause had nothing to be held against."""
    source = source_of(100)
    index = opened(make, None, source)
    source.retire(range(10, 40))
    shortened(source, 5)
    position, left = source.position, iter(range(50, 62))

    def moving() -> Position:
        if number := next(left, None):
            source.retire([number])
        return position()

    source.position = moving  # type: ignore[method-assign]  # as another program changes it
    index.catch_up(source)
    assert next(left, None) is None, "no round found it at rest"
    index.catch_up(source, position())
    assert everything(index) == live(source)
