"""The bar under an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

import ui.chat
from ragcache.report import COMPUTED, PREFIX
from ragcache.store import DiskTier
from ragcache.store.findings import BUCKET, RAM
from ui.chat.report import TIERS, bar


@pytest.mark.parametrize("tier", [RAM, DiskTier.name, BUCKET, PREFIX, COMPUTED])
def test_each_place_that_a_chunk_comes_from_has_its_name_its_reason_and_its_colour(tier: str) -> None:
    drawn = bar({"chunks": [{"tier": tier, "tokens": 90, "reused": 80}], "ttft_s": 0.2})
    name, reason = TIERS[tier]
    assert f"1 passage: {name}" in drawn
    assert reason in drawn
    styles = (Path(ui.chat.__file__).parent / "style.css").read_text()
    assert f"rc-tier rc-tier-{tier}" in drawn and f".rc-tier-{tier} " in styles


def test_a_place_that_nobody_knows_is_told_by_its_name() -> None:
    assert "1 passage: tape" in bar({"chunks": [{"tier": "tape", "tokens": 90}], "ttft_s": 0.2})
