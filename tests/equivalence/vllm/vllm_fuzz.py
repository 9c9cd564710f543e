"""A short run of the campaign `tests/fuzz/link_asks.py`."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.link_asks import opened


def test_no_ask_ends_the_engine_or_changes_an_answer(tmp_path: Path) -> None:
    with opened(tmp_path, seed=7) as campaign:
        campaign.run(400)
    assert campaign.kinds["refused"] > 100
    assert campaign.kinds["linked"] > 50
    assert campaign.kinds["captured"] > 10
