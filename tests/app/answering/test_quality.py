"""When a collection's answers are linked otherwise, by what was measured of them."""

from __future__ import annotations

import math
from itertools import count

import numpy as np
import pytest

from app.answering.quality import BACK, BEGIN_S, FEWEST, FIRST, LIMIT, LOST_S, MOST, TIME, Level, QualityGate, at_level
from ragcache.linking import make_linker
from ragcache.linking.auto import Auto
from ragcache.linking.baselines import Full, Naive

AUTO = make_linker("auto")
PROMPTS = count()


def measure(gate: QualityGate, times: int, **kl: float) -> Level:
    """By name of the level: what an answer comes to with its linker."""
    for _ in range(times):
        gate.samples(1, next(PROMPTS))
        gate.found(1, [(one, kl[one.name.lower()]) for one in gate.levels(1, AUTO)], 0.0)
    (state,) = gate.states()
    return state.level


def test_what_is_near_stays_as_it_was_asked_for() -> None:
    gate = QualityGate(0.02)
    assert measure(gate, 500, asked=0.9 * LIMIT) is Level.ASKED
    assert gate.linker(1, AUTO) is AUTO
    assert gate.notes(1) == ()


def test_a_drift_raises_the_repair_and_then_ends_linking() -> None:
    gate = QualityGate(0.02)
    gate.forget(1)
    assert measure(gate, FEWEST - 1, asked=2 * LIMIT) is Level.ASKED, "a few are chance"
    assert measure(gate, 1, asked=2 * LIMIT) is Level.MORE
    raised = gate.linker(1, AUTO)
    assert isinstance(raised, Auto) and raised.most == pytest.approx(2.5 * Auto().most)
    assert "more tokens are repaired" in gate.notes(1)[0]
    assert measure(gate, FEWEST - 1, asked=1, more=1) is Level.MORE
    assert measure(gate, 1, asked=1, more=1) is Level.OFF
    assert gate.linker(1, AUTO) == Full()
    assert gate.linker(2, AUTO) is AUTO, "another collection"
    assert "without the cache" in gate.notes(1)[0]


def test_it_is_taken_back_step_by_step() -> None:
    gate = QualityGate(0.02)
    measure(gate, 3 * MOST, asked=1, more=1)
    near = 0.9 * BACK * LIMIT
    assert measure(gate, MOST - 1, asked=near, more=near) is Level.OFF
    assert measure(gate, 1, asked=near, more=near) is Level.MORE
    assert measure(gate, MOST, asked=near, more=near) is Level.ASKED
    assert gate.notes(1) == ()


def test_what_is_between_goes_neither_way() -> None:
    gate = QualityGate(0.02)
    measure(gate, MOST, asked=1, more=0.8 * LIMIT)
    assert measure(gate, 100, asked=0.8 * LIMIT, more=0.8 * LIMIT) is Level.MORE


def test_what_is_no_number_is_no_answer() -> None:
    assert measure(QualityGate(0.02), 3 * MOST, asked=math.nan, more=math.nan) is Level.OFF


def test_one_answer_is_no_drift() -> None:
    """Nor are two of eight, however far off."""
    gate = QualityGate(0.02)
    for _ in range(50):
        for kl in (0.02, 0.02, 0.02, 0.02, 0.02, math.nan, 0.02, 900.0):
            assert measure(gate, 1, asked=kl) is Level.ASKED


def test_where_nothing_is_cached_any_more_linking_begins_anew() -> None:
    gate = QualityGate(0.02)
    measure(gate, 3 * MOST, asked=1, more=1)
    for _ in range(MOST):
        gate.found(1, [], 0.0)
    (state,) = gate.states()
    assert state.level is Level.MORE


def test_what_one_client_asks_and_asks_is_one_answer() -> None:
    gate = QualityGate(1.0)
    assert gate.samples(1, 7)
    gate.found(1, [(Level.ASKED, 1.0)], 0.0)
    assert not any(gate.samples(1, 7) for _ in range(200))


def test_one_is_measured_at_a_time_and_none_is_waited_for_for_ever() -> None:
    now = [0.0]
    gate = QualityGate(1.0, lambda: now[0])
    assert gate.samples(1, 1)
    assert not gate.samples(1, 2) and not gate.samples(2, 3)
    now[0] = LOST_S + 1
    assert gate.samples(1, 4)
    gate.found(1, [], 0.0)
    assert gate.samples(1, 5)


def test_a_linker_that_cannot_repair_more_is_left_at_once() -> None:
    gate, naive = QualityGate(0.02), Naive()
    gate.samples(1, 1)
    for _ in range(FEWEST):
        gate.found(1, [(one, 1.0) for one in gate.levels(1, naive)], 0.0)
    assert gate.linker(1, naive) == Full() and "without the cache" in gate.notes(1)[0]
    for _ in range(MOST):
        assert gate.levels(1, naive) == [Level.ASKED]
        gate.found(1, [(Level.ASKED, 0.01)], 0.0)
    assert gate.linker(1, naive) is naive


def test_sound_collections_raise_no_alarm_and_drifts_are_seen_within_200() -> None:
    """Of divergences as they are measured: most are small, and a few ten times as large as their mean."""
    chance = np.random.default_rng(0)
    alarms = seen = 0
    for _ in range(200):
        gate, sound = QualityGate(0.02), chance.lognormal(math.log(0.034) - 0.72, 1.2, 300)
        alarms += any(measure(gate, 1, asked=float(one), more=0.01) for one in sound)
        drift = chance.lognormal(math.log(0.4) - 0.72, 1.2, 200)
        seen += any(measure(gate, 1, asked=float(one), more=float(one) / 3) for one in drift)
    assert seen == 200
    assert alarms < 60, "which cost some repair, and are taken back"


def test_how_linkers_go_further() -> None:
    assert at_level(Naive(), Level.MORE) == Naive(), "it has no measure of its repair"
    assert at_level(Naive(), Level.OFF) == Full()
    assert at_level(Full(), Level.OFF) == Full()
    by_kl = at_level(make_linker("auto:kl=0.05"), Level.MORE)
    assert isinstance(by_kl, Auto) and by_kl.kl == pytest.approx(0.02) and by_kl.ratio is None
    most = at_level(make_linker("auto:ratio=0.8"), Level.MORE)
    assert isinstance(most, Auto) and most.ratio == 1.0


def test_the_first_answers_and_then_each_so_many_are_measured() -> None:
    gate = QualityGate(0.1)
    asked = []
    for prompt in range(40):
        asked.append(gate.samples(1, prompt))
        if asked[-1]:
            gate.found(1, [(Level.ASKED, 0.01)], 0.0)
    assert asked[:FIRST] == [True] * FIRST
    assert sum(asked[FIRST:]) == 4
    assert not any(QualityGate(0.0).samples(1, prompt) for prompt in range(40))


def test_measuring_takes_a_bounded_share_of_the_time() -> None:
    now = [0.0]
    gate = QualityGate(1.0, lambda: now[0])
    spent = 0.0
    for _ in range(1000):
        now[0] += 1.0
        if gate.samples(1, next(PROMPTS)):
            gate.found(1, [(Level.ASKED, 0.01)], 2.0)
            spent += 2.0
    assert BEGIN_S <= spent <= BEGIN_S + TIME * 1000 + 2
    assert gate.seconds == spent


def test_a_collection_that_is_gone_is_forgotten() -> None:
    gate = QualityGate(0.02)
    measure(gate, MOST, asked=1, more=0.01)
    gate.samples(1, next(PROMPTS))
    gate.forget(1)
    assert gate.linker(1, AUTO) is AUTO and gate.states() == []
    assert gate.levels(1, AUTO) == []
    gate.found(1, [(Level.ASKED, 0.5)], 1.0)
    assert gate.states() == [], "what was being measured by then brings nothing back"


def test_what_could_not_be_measured_tells_nothing() -> None:
    """Nor that nothing was cached any more."""
    gate = QualityGate(0.02)
    measure(gate, FEWEST, asked=2 * LIMIT)
    for _ in range(2 * MOST):
        assert gate.samples(1, next(PROMPTS)) or gate.seconds == 0
        gate.found(1, None, 0.0)
    (state,) = gate.states()
    assert state.level is Level.MORE
