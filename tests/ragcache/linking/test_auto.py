"""The default linker and its quick form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ragcache.errors import ConfigError
from ragcache.linking.auto import POWER, SCALE, Auto, Fast
from ragcache.linking.base import LinkedPrompt, PlacedChunk, read_layers

MakeChunk = Callable[..., PlacedChunk]
MakePrompt = Callable[..., LinkedPrompt]


def test_one_budget_goes_where_context_is_gone_and_the_question_reads(chunk: MakeChunk, prompt: MakePrompt) -> None:
    gone, kept = [[0.0] * 4, [0.1, 0.2, 0.3, 0.4]], [[0.0] * 4, [0.9] * 4]
    chunks = [chunk(0, 1, 4, inter=gone), chunk(1, 5, 4, inter=kept, places=(0,)), chunk(2, 9, 4, inter=gone)]
    linked = prompt(chunks, question=13, attention=[9, 1, 1, 1, 1, 9, 9, 9, 9, 5, 1, 1, 1])
    # Lost attention and the floor times the question's: .11 .21 .31 .41, .09 each in the second chunk, .55 .21 .31 .41.
    assert Auto(ratio=0.25).select(linked).tolist() == [4, 9, 12]
    assert Auto(ratio=0.25, depth=0).select(linked).tolist() == [3, 4, 12], "without a probe .1 stays .1"


def test_a_chunk_captured_alone_is_repaired_from_its_head(chunk: MakeChunk, prompt: MakePrompt) -> None:
    linked = prompt([chunk(0, 3, 8)], question=11, attention=[1.0] * 11)
    assert Auto(ratio=0.25).select(linked).tolist() == [3, 4]


def test_a_chunk_captured_alone_behind_another_system_has_lost_that_too(chunk: MakeChunk, prompt: MakePrompt) -> None:
    alone = chunk(0, 3, 8, inter=[[0.0, 0.0, 0.0, 0.0, 0.0, 0.7, 0.0, 0.6]])
    for system_gone, positions in ((False, [3, 4, 5]), (True, [3, 8, 10])):  # 1, .5, .33 …; 1, .5, …, .87, …, .73
        linked = prompt([replace(alone, system_gone=system_gone)], question=11, attention=[1.0] * 11)
        assert Auto(ratio=0.375).select(linked).tolist() == positions


def test_exact_chunks_are_left_alone_and_not_counted(chunk: MakeChunk, prompt: MakePrompt) -> None:
    chunks = [chunk(0, 1, 8, exact=True), chunk(1, 9, 4, inter=[[0.0] * 4, [0.1, 0.2, 0.3, 0.4]])]
    linked = prompt(chunks, question=13, attention=[1.0] * 13)
    assert Auto(ratio=0.5).select(linked).tolist() == [11, 12]


def test_a_repair_ends_where_little_is_left_to_gain(chunk: MakeChunk, prompt: MakePrompt) -> None:
    lost = [[0.0] * 4, [0.09, 0.19, 0.29, 0.39]]
    linked = prompt([chunk(0, 1, 4, inter=lost)], question=5, attention=[0.0, 0.1, 0.1, 0.1, 0.1])
    # Worth .01, .02, .03 and .04: that much times `scale` is off if nothing is repaired.
    for kl, positions, predicted in (
        (0.1, [], 0.1),
        (0.07, [4], 0.06),
        (0.02, [2, 3, 4], 0.01),
        (0.0, [1, 2, 3, 4], 0),
    ):
        choice = Auto(kl=kl, scale=1.0, power=1.0).choose(linked)
        assert (choice.positions.tolist(), choice.predicted) == (positions, pytest.approx(predicted, abs=1e-6))
    within = Auto(kl=0.0, ratio=0.5, scale=1.0, power=1.0).choose(linked)
    assert (within.positions.tolist(), within.predicted) == ([3, 4], pytest.approx(0.03))
    assert Auto(ratio=0.5, scale=1e-6).select(linked).tolist() == [3, 4], "a ratio alone is spent whatever is left"


def test_by_default_a_tenth_is_repaired_whatever_is_predicted(chunk: MakeChunk, prompt: MakePrompt) -> None:
    lost = [[0.0] * 100, [0.09] * 100]
    linked = prompt([chunk(0, 1, 100, inter=lost)], question=101, attention=[0.0, *[0.01] * 100])
    choice = Auto().choose(linked)
    # Each is worth .001, and 90 are left.
    assert (len(choice.positions), choice.predicted) == (10, pytest.approx(SCALE * 0.09**POWER, rel=1e-3))
    assert Auto(scale=3.0, power=0.5).choose(linked).predicted == pytest.approx(0.9, rel=1e-3)
    assert Fast().choose(linked).predicted is None


def test_a_prediction_counts_where_it_ends_a_repair() -> None:
    assert Auto(scale=2.0, power=0.5).choosing == Auto().choosing
    assert Auto(kl=0.1, scale=2.0).choosing != Auto(kl=0.1).choosing
    assert Auto(ratio=0.2).choosing != Auto().choosing


def test_a_divergence_needs_a_probe() -> None:
    for wrong in (lambda: Auto(kl=0.1, depth=0), lambda: Fast(kl=0.1)):
        with pytest.raises(ConfigError, match=r"kl=0\.1 is predicted by a probe"):
            wrong()


def test_fast_neither_probes_nor_weighs_places(
    chunk: MakeChunk, prompt: MakePrompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = prompt([chunk(0, 1, 40, inter=[[0.0] * 40, [0.01 * n for n in range(40)]])], question=41)
    monkeypatch.setattr(type(linked), "question_attention", None)
    assert Fast().select(linked).tolist() == [40]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ratio": 1.5}, r"ratio=1\.5"),
        ({"depth": -0.1}, r"depth=-0\.1"),
        ({"kl": -1.0}, r"kl=-1\.0"),
        ({"scale": 1e9}, "scale"),
        ({"power": -1.0}, r"power=-1\.0"),
    ],
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Auto(**settings)


@pytest.mark.parametrize(
    ("depth", "layers", "read"),
    [(1.0, 30, range(15, 30)), (0.2, 30, range(3, 6)), (0.01, 30, range(1)), (0.67, 3, range(1, 2)), (1, 1, range(1))],
)
def test_a_probe_reads_the_later_half_of_its_layers(depth: float, layers: int, read: range) -> None:
    assert read_layers(depth, layers) == read
