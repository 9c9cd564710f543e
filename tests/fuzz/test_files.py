"""A short run of the campaign, and that it would find what it looks for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.loaders.base import ParseLimits
from tests.fuzz.files import Reader, Readers, case, seeds

pytestmark = pytest.mark.slow


def test_mutated_files_end_in_a_document_or_a_clear_error() -> None:
    with Readers(2) as readers:
        campaigns = [readers.run(name, sound, seed=0, count=25) for name, sound in seeds().items()]
    assert [(told, campaign.name) for campaign in campaigns for told, _ in campaign.finds] == []
    assert {campaign.outcomes.total() for campaign in campaigns} == {25}


def test_a_case_is_the_same_every_time() -> None:
    sound = seeds()["docx"]
    made = [[case("docx", sound, seed, number) for number in range(20)] for seed in (3, 3, 4)]
    assert made[0] == made[1] != made[2]


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader(memory=1 << 30, patience=600.0)
    yield reader
    reader.stop()


def test_an_exception_and_the_end_of_a_process_are_finds(reader: Reader) -> None:
    assert reader.judge("case.unknown", b"words").startswith("refused")
    assert "(exit status 1)" in reader.judge(None, b"words")  # type: ignore[arg-type]
    assert reader.judge("case.txt", b"words") == "parsed"
    told = reader.judge("case.json", b"[" + b"[]," * 8_000_000 + b"1]")
    assert "MemoryError" in told


def test_too_much_time_is_a_find() -> None:
    reader = Reader(memory=ParseLimits.max_memory, patience=0.0)
    assert reader.judge("case.txt", b"words").startswith("takes more than 0 seconds")
    reader.stop()
