from __future__ import annotations

import json
import random

import pytest

from ragcache.rates import MOST_OBSERVED, SETTLED, Rates, Work

PASS, ROW, ATTENDED, PLACED = 2e-2, 1e-3, 5e-7, 3e-5


def seconds(work: Work) -> float:
    return PASS * work.passes + ROW * work.rows + ATTENDED * work.attended + PLACED * work.placed


def learnt() -> Rates:
    rates = Rates()
    for start, end, placed in [(0, 900, 0), (880, 960, 800), (3000, 3060, 0), (0, 4000, 0), (100, 130, 2000)] * 12:
        work = Work.of_rows(start, end) + Work(passes=1, placed=placed)
        rates.observe(work, seconds(work))
    return rates


def test_rows_attend_to_all_positions_up_to_their_own() -> None:
    assert Work.of_rows(2, 5) == Work(rows=3, attended=3 + 4 + 5)
    assert Work.of_rows(5, 2) == Work()
    assert Work.of_rows(0, 2) + Work(passes=1) * 2 == Work(passes=2, rows=2, attended=3)


@pytest.mark.parametrize("work", [Work.of_rows(0, 2000) + Work(passes=1), Work.of_rows(3900, 4000), Work(placed=1500)])
def test_what_was_measured_tells_what_was_not(work: Work) -> None:
    assert learnt().seconds(work) == pytest.approx(seconds(work), rel=0.1)


def test_a_machine_that_became_slower_is_noticed() -> None:
    rates, works = learnt(), [Work.of_rows(start, end) + Work(passes=1) for start, end in ((0, 1000), (3000, 3060))]
    for work in works * 200:
        rates.observe(work, 3 * seconds(work))
    for work in works:
        assert rates.seconds(work) == pytest.approx(3 * seconds(work), rel=0.1)


@pytest.mark.parametrize("scale", [0.02, 1.0, 4.0])
def test_a_long_answer_does_not_efface_what_a_prefill_takes(scale: float) -> None:
    """Each of its tokens is a measurement too, of the weights alone."""
    rates, prefill, step = Rates(), Work.of_rows(0, 1000) + Work(passes=1), Work.of_rows(1000, 1001) + Work(passes=1)
    for _ in range(20):
        rates.observe(prefill, scale * seconds(prefill))
    for _ in range(400):
        rates.observe(step, scale * seconds(step))
    assert rates.seconds(prefill) == pytest.approx(scale * seconds(prefill), rel=0.25)


def test_one_measurement_that_is_too_short_proves_nothing() -> None:
    rates, work = learnt(), Work.of_rows(0, 1000) + Work(passes=1)
    rates.observe(work, 1e-6)
    assert rates.seconds(work) > 0.4 * seconds(work)
    for _ in range(20):
        rates.observe(work, seconds(work))
    assert rates.seconds(work) == pytest.approx(seconds(work), rel=0.2)


@pytest.mark.parametrize("count", [1, 3, MOST_OBSERVED, 3 * MOST_OBSERVED + 5])
def test_what_is_learnt_is_the_same_whenever_the_spread_is_asked(count: int) -> None:
    """Nobody asks in between, or somebody does."""
    random_ = random.Random(count)
    asked, unasked = Rates(), Rates()
    for _ in range(count):
        work = Work.of_rows(start := random_.randrange(2000), start + random_.randrange(1, 300)) + Work(passes=1)
        took = seconds(work) * random_.uniform(0.8, 1.3)
        for rates in (asked, unasked):
            rates.observe(work, took)
        assert asked.spread >= 0.0
    assert unasked.copy().told() == asked.told()
    assert unasked.spread == asked.spread
    assert unasked.settled is (count > SETTLED)
    assert unasked.seconds(Work(passes=1)) == asked.seconds(Work(passes=1))


def test_what_nobody_asks_about_is_bounded() -> None:
    rates = Rates()
    for _ in range(10 * MOST_OBSERVED):
        rates.observe(Work(passes=1), PASS)
        assert len(rates._observed) < MOST_OBSERVED


def test_no_rate_is_negative() -> None:
    rates = Rates()
    for _ in range(20):
        rates.observe(Work(passes=1, rows=100), 0.1)
        rates.observe(Work(passes=1, rows=50), 0.2)
    assert rates.seconds(Work(rows=1)) >= 0.0
    assert rates.seconds(Work(passes=1)) > 0.0


def test_measurements_that_tell_nothing_are_left_out() -> None:
    rates = Rates()
    before = rates.seconds(Work(passes=1, rows=10))
    rates.observe(Work(), 1.0)
    rates.observe(Work(rows=3), 0.0)
    rates.observe_load("disk", 0, 1.0)
    rates.observe_link("auto", 0, 3.0)
    assert rates.seconds(Work(passes=1, rows=10)) == before
    assert rates.load_seconds("disk", 1000) < 1e-4


def test_tiers_and_linkers_have_rates_of_their_own() -> None:
    rates = Rates()
    for _ in range(60):
        rates.observe_load("disk", 1_000_000, 2.0)
        rates.observe_link("auto", 1000, 250)
    assert rates.load_seconds("disk", 500_000) == pytest.approx(1.0, rel=0.01)
    assert rates.load_seconds("ram", 500) < 1e-4
    assert rates.link_share("auto") == pytest.approx(0.25, rel=0.01)
    assert rates.link_share("fast") < 0.25


def test_one_bad_sight_is_not_the_last() -> None:
    """What is declined is not seen again, so it counts for less with each time that it was."""
    rates = Rates()
    rates.observe_load("disk", 1000, 60.0)  # a disk that hung
    rates.observe_link("auto", 200, 3000)
    assert rates.link_share("auto") < 0.3, "a part is never more than all"
    hung = rates.load_seconds("disk", 1_000_000)
    for _ in range(1000):
        rates.declined("auto", ["disk"])
    assert rates.load_seconds("disk", 1_000_000) < hung / 1000


def test_names_are_bounded() -> None:
    rates = Rates()
    for number in range(1000):
        rates.observe_link(f"auto:ratio={number}", 1000, 900)
    assert rates.link_share("auto:ratio=999") > 2 * rates.link_share("auto:ratio=0")


def test_a_request_takes_some_time_whatever_its_size() -> None:
    rates, source = Rates(), random.Random(3)
    for _ in range(200):
        nbytes = source.choice([100_000, 400_000, 1_600_000])
        rates.observe_load("server", nbytes, 0.05 + 1e-8 * nbytes)
    assert rates.load_seconds("server", 10_000) == pytest.approx(0.05, rel=0.05)
    assert rates.load_seconds("server", 10_000_000) == pytest.approx(0.15, rel=0.05)


def test_reads_of_one_size_tell_their_bytes_alone() -> None:
    rates = Rates()
    for place in range(200):
        rates.observe_load("disk", 1_000_000 + place % 7, 0.04 if place % 2 else 0.0)
    assert rates.load_seconds("disk", 2_000_000) == pytest.approx(2 * rates.load_seconds("disk", 1_000_000))


@pytest.mark.parametrize("off", [0.0, 0.2])
def test_how_far_predictions_are_off_is_known(off: float) -> None:
    rates, source = Rates(), random.Random(5)
    for _ in range(300):
        rates.observe(Work.of_rows(0, 500), 0.2 * (1 + source.choice([-off, off])))
        factor = 1 + source.choice([-off, off])
        for _ in range(4):  # of reads that are under way together one may seem to take nothing
            rates.observe_load("disk", 1_000_000, 0.1 * factor)
    assert rates.spread == pytest.approx(off, abs=0.06)
    assert rates.load_spread("disk") == pytest.approx(off, abs=0.1)
    assert Rates().load_spread("disk") > 0.0


def test_reads_at_once_are_not_taken_for_a_spread() -> None:
    rates = Rates()
    for place in range(200):
        rates.observe_load("disk", 1_000_000, 0.2 if place % 2 else 0.0)
    assert rates.load_spread("disk") < 0.1


def test_what_was_told_is_where_another_begins() -> None:
    rates = learnt()
    for nbytes in (1e5, 1e6, 5e5) * 20:
        rates.observe_load("disk", int(nbytes), 0.01 + 2e-8 * nbytes)
        rates.observe_link("auto", 1000, 250)
    again = Rates(json.loads(json.dumps(rates.told())))
    for work in (Work.of_rows(0, 2000) + Work(passes=1), Work(placed=1500), Work.of_rows(900, 901)):
        assert again.seconds(work) == pytest.approx(rates.seconds(work), rel=0.02)
    for nbytes in (1000, 10**7):
        assert again.load_seconds("disk", nbytes) == pytest.approx(rates.load_seconds("disk", nbytes), rel=0.02)
    assert again.link_share("auto") == pytest.approx(0.25, rel=0.02)
    assert Rates().told() is None


def test_what_was_told_is_overruled_by_what_is_measured() -> None:
    rates = Rates({"work": [5.0, 1.0, 1e-3, 1e-2], "loads": {"disk": [1.0, 1e-5, 0.1]}})
    for _ in range(100):
        rates.observe(Work.of_rows(0, 900) + Work(passes=1), 1.0)
        rates.observe_load("disk", 1_000_000, 0.1)
    assert rates.seconds(Work.of_rows(0, 900) + Work(passes=1)) == pytest.approx(1.0, rel=0.2)
    assert rates.load_seconds("disk", 1_000_000) == pytest.approx(0.1, rel=0.2)


def test_how_far_plans_were_off_is_the_median_of_late() -> None:
    rates = Rates()
    for _ in range(7):
        rates.observe_plan(1.0, 2.0)
    assert rates.plan_error is None, "too few tell nothing"
    rates.observe_plan(1.0, 2.0)
    assert rates.plan_error == pytest.approx(0.5)
    rates.observe_plan(0.0, 1.0)
    rates.observe_plan(1.0, 0.0)
    for _ in range(64):
        rates.observe_plan(1.1, 1.0)
    assert rates.plan_error == pytest.approx(0.1)


def test_a_copy_knows_what_earlier_runs_have_learnt_and_learns_for_itself() -> None:
    first, work = Rates(), Work(passes=1, rows=100, attended=5000)
    for _ in range(40):
        first.observe(work, 1.0)
    known = Rates(first.told())
    copied = known.copy()
    assert copied.seconds(work) == known.seconds(work) != Rates().seconds(work)
    before = known.seconds(work)
    for _ in range(40):
        copied.observe(work, 50.0)
    assert known.seconds(work) == before != copied.seconds(work)
