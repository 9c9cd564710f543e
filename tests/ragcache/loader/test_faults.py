"""A disk that breaks costs time, never an answer."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.fuzz.cold_loads import KINDS, Campaign
from tests.tiny import Tiny, make_chunks

SEED, PROMPTS = 17, 40  # some 120 faults; `make fuzz` tries more


def test_random_faults_leave_the_answer_as_it_is(tiny: Tiny, tmp_path: Path) -> None:
    campaign = Campaign(tiny.engine, tmp_path, make_chunks(20, 31, 18, 45, 22, 14, 37, 19), Random(SEED))
    campaign.run(PROMPTS)
    assert sum(campaign.kinds.values()) > 100
    assert set(campaign.kinds) == set(KINDS)
    assert len(campaign.fronts) > 3, "some came, some were computed"


def test_so_they_do_where_upper_layers_come_later(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragcache.loader.climb.READ_BYTES", 1)
    campaign = Campaign(tiny.engine, tmp_path, make_chunks(20, 31, 18, 45, 22, 14, 37, 19), Random(SEED), layers=True)
    campaign.run(PROMPTS)
    assert set(campaign.kinds) == set(KINDS)
    assert len(campaign.fronts) > 1, "some came, some were computed"
