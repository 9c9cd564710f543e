from __future__ import annotations

from app.captions import report_line
from ragcache.report import OTHER, ChunkReport, Report


def report(*tiers: str, ttft_s: float = 0.25, repaired: int = 9) -> Report:
    chunks = [ChunkReport(f"{place}", 100, tier, 100 - repaired, repaired) for place, tier in enumerate(tiers)]
    return Report("auto", 700, 600, 100, chunks=chunks, ttft_s=ttft_s)


def test_a_report_in_a_line() -> None:
    assert report_line(report("disk", "ram", "disk", "computed")) == (
        "first token 0.25 s · 2/4 chunks from disk · 1/4 chunks from ram · 1/4 chunks computed · 9 % repaired"
    )


def test_beside_the_same_prompt_without_cache() -> None:
    assert report_line(report("ram"), report("computed", ttft_s=2.0)) == (
        "first token 0.25 s (without cache 2.00 s, measured) · 1/1 chunks from ram · 9 % repaired"
    )


def test_kv_of_another_system_prompt_is_told() -> None:
    mixed = report("disk", "disk", "computed")
    mixed.chunks[0].system = OTHER
    assert report_line(mixed) == (
        "first token 0.25 s · 2/3 chunks from disk · 1/3 chunks computed · 1/3 of another system prompt · 9 % repaired"
    )


def test_without_chunks() -> None:
    assert report_line(report()) == "first token 0.25 s · no chunks"
