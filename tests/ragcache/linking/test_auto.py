"""The default linker and its quick form."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ragcache.errors import ConfigError
from ragcache.linking.auto import Auto, Fast
from ragcache.linking.base import LinkedPrompt, PlacedChunk, read_layers

MakeChunk = Callable[..., PlacedChunk]
MakePrompt = Callable[..., LinkedPrompt]
FAR = 10**9  # places do not count then


def test_one_budget_goes_where_context_is_gone_and_the_question_reads(chunk: MakeChunk, prompt: MakePrompt) -> None:
    gone, kept = [[0.0] * 4, [0.1, 0.2, 0.3, 0.4]], [[0.0] * 4, [0.9] * 4]
    chunks = [chunk(0, 1, 4, inter=gone), chunk(1, 5, 4, inter=kept, places=(0,)), chunk(2, 9, 4, inter=gone)]
    linked = prompt(chunks, question=13, attention=[9, 1, 1, 1, 1, 9, 9, 9, 9, 25, 1, 1, 1])
    # Lost attention times the root of the question's: .1 .2 .3 .4, nothing in the second chunk, .5 .2 .3 .4.
    assert Auto(ratio=0.25, half=FAR).select(linked).tolist() == [4, 9, 12]
    assert Auto(ratio=0.25, depth=0).select(linked).tolist() == [3, 4, 12], "without a probe .1 stays .1"


def test_what_is_read_far_from_the_start_counts_less(chunk: MakeChunk, prompt: MakePrompt) -> None:
    lost = [[0.0] * 4, [0.5] * 4]
    chunks = [chunk(0, 4, 4, inter=lost), chunk(1, 8, 4, inter=lost)]
    attention = [0.0] * 4 + [1.0] * 4 + [3.9] * 4
    linked = prompt(chunks, question=12, attention=attention)
    assert Auto(ratio=0.25, half=FAR).select(linked).tolist() == [8, 9]
    # At 8 the root of 3.9 is divided by 9, at 4 that of 1 by 5, at 5 by 6, at 9 by 10.
    assert Auto(ratio=0.25, half=1).select(linked).tolist() == [4, 8]


def test_a_chunk_captured_alone_is_repaired_from_its_head(chunk: MakeChunk, prompt: MakePrompt) -> None:
    linked = prompt([chunk(0, 3, 8)], question=11, attention=[1.0] * 11)
    assert Auto(ratio=0.25, half=FAR).select(linked).tolist() == [3, 4]


def test_exact_chunks_are_left_alone_and_not_counted(chunk: MakeChunk, prompt: MakePrompt) -> None:
    chunks = [chunk(0, 1, 8, exact=True), chunk(1, 9, 4, inter=[[0.0] * 4, [0.1, 0.2, 0.3, 0.4]])]
    linked = prompt(chunks, question=13, attention=[1.0] * 13)
    assert Auto(ratio=0.5, half=FAR).select(linked).tolist() == [11, 12]


def test_fast_neither_probes_nor_weighs_places(
    chunk: MakeChunk, prompt: MakePrompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = prompt([chunk(0, 1, 40, inter=[[0.0] * 40, [0.01 * n for n in range(40)]])], question=41)
    monkeypatch.setattr(type(linked), "question_attention", None)
    assert Fast().select(linked).tolist() == [40]


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"ratio": 1.5}, r"ratio=1\.5"), ({"depth": -0.1}, r"depth=-0\.1"), ({"half": 0}, r"half=0 .*at least 1")],
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Auto(**settings)  # type: ignore[arg-type]  # one of them is a whole number


@pytest.mark.parametrize(
    ("depth", "layers", "read"),
    [(1.0, 30, range(15, 30)), (0.2, 30, range(3, 6)), (0.01, 30, range(1)), (0.67, 3, range(1, 2)), (1, 1, range(1))],
)
def test_a_probe_reads_the_later_half_of_its_layers(depth: float, layers: int, read: range) -> None:
    assert read_layers(depth, layers) == read
