"""Memory is lent to one at a time, and lent again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragcache.engine.memory import Memory

CPU = torch.device("cpu")


def take(memory: Memory, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return memory.take(shape, dtype, CPU)


@pytest.mark.parametrize(("tokens", "dtype"), [(1000, torch.float32), (700, torch.float32), (2000, torch.bfloat16)])
def test_what_came_back_is_lent_again(tokens: int, dtype: torch.dtype) -> None:
    memory = Memory()
    first = take(memory, 2, 1000)
    place = first.data_ptr()
    del first
    again = take(memory, 2, tokens, dtype=dtype)
    assert again.data_ptr() == place
    assert (again.shape, again.dtype) == ((2, tokens), dtype)


def test_a_view_keeps_it() -> None:
    memory = Memory()
    first = take(memory, 2, 1000)
    first.fill_(7)
    view = first.unbind()[1][500:]
    del first
    take(memory, 2, 1000).fill_(8)
    assert view.eq(7).all()
    place = view.untyped_storage().data_ptr()
    del view
    assert take(memory, 2, 1000).data_ptr() == place


def test_the_larger_of_two_is_kept() -> None:
    memory = Memory()
    small, large = take(memory, 1000), take(memory, 4000)
    place = large.data_ptr()
    del large, small
    assert take(memory, 1000).data_ptr() == place
    for _ in range(2):
        assert take(memory, 4000).data_ptr() == place, "nothing else was kept"


def test_a_prompt_that_grows_a_little_fits() -> None:
    memory = Memory()
    place = take(memory, 1025).data_ptr()
    assert take(memory, 1120).data_ptr() == place
    assert take(memory, 2300).shape == (2300,)


@given(sizes=st.lists(st.tuples(st.integers(1, 300), st.sampled_from([torch.float32, torch.bfloat16])), max_size=9))
def test_any_sizes(sizes: list[tuple[int, torch.dtype]]) -> None:
    memory = Memory()
    for count, dtype in sizes:
        taken = take(memory, 3, count, dtype=dtype)
        assert (taken.shape, taken.dtype, taken.is_contiguous()) == ((3, count), dtype, True)
        taken.fill_(1)


def test_threads_never_share_it() -> None:
    memory = Memory()

    def fill(number: int) -> bool:
        taken = take(memory, 5000)
        for _ in range(20):
            taken.fill_(number)
            if not taken.eq(number).all():
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(fill, range(200)))
