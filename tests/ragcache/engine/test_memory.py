"""Memory is lent to one at a time, and lent again."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragcache.engine.resources import LOANS, Memory

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


@pytest.fixture
def forced_switches() -> Iterator[None]:
    """Threads take turns, and garbage is collected, in the middle of everything."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


class Tenant:
    """Of one lease. Each step of a dictionary is one for all threads, so whoever finds his memory's address taken has
    met another tenant.
    """

    def __init__(self, lease: torch.Tensor, live: dict[int, object], *, cycle: bool) -> None:
        self.lease, self.live, self.name = lease, live, object()
        self.alone = live.setdefault(lease.data_ptr(), self.name) is self.name
        self.itself = self if cycle else None  # then it ends in a collection, on whichever thread that falls

    def __del__(self) -> None:
        if self.alone:
            del self.live[self.lease.data_ptr()]  # the lease itself goes after that


@pytest.mark.slow
def test_two_live_leases_never_share_memory(forced_switches: None) -> None:
    memory, live = Memory(), dict[int, object]()

    def rent(thread: int) -> bool:
        return all(Tenant(take(memory, 300), live, cycle=number % 16 == thread).alone for number in range(3000))

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(rent, range(16)))


def test_a_collection_in_the_middle_of_a_loan_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it gives back comes back on the thread that is lending: a lock would wait for itself."""
    memory = Memory()
    original = memory._taken

    def collecting() -> torch.Tensor | None:
        monkeypatch.setattr(memory, "_taken", original)
        garbage = [take(memory, 1000)]
        garbage.append(garbage)  # type: ignore[arg-type]  # a cycle
        del garbage
        block = original()
        gc.collect()
        return block

    monkeypatch.setattr(memory, "_taken", collecting)
    first = take(memory, 1000)
    assert take(memory, 1000).data_ptr() != first.data_ptr()


def test_a_block_that_nobody_needs_so_large_goes() -> None:
    memory = Memory()
    place = take(memory, 1 << 20).data_ptr()
    for _ in range(LOANS - 1):
        assert take(memory, 1000).data_ptr() == place
    take(memory, 1000)
    assert not memory._free
