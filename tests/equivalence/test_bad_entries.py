"""Identity 6: a corrupt, missing or foreign entry gives the answer of no entry: slower, never wrong, and said so."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.report import COMPUTED, Report
from ragcache.store import open_store
from ragcache.types import Segment, Variant
from tests.tiny import Tiny, assert_close, make_chunks, make_question, make_system

SYSTEM, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(30, 25, 28, 22)
SEGMENTS: list[Segment] = [SYSTEM, DOCUMENT[2], DOCUMENT[1], DOCUMENT[0], QUESTION]
SPOILT = 1  # of the document's chunks
Spoil = Callable[[Path, Path], None]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x40
    path.write_bytes(content)


def flip_kv(path: Path, other: Path) -> None:
    flip(path, -1000)


def flip_header(path: Path, other: Path) -> None:
    flip(path, path.read_bytes().index(b"checksums"))


def cut_short(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes()[:-500])


def empty(path: Path, other: Path) -> None:
    path.write_bytes(b"")


def of_another_chunk(path: Path, other: Path) -> None:
    shutil.copy(other, path)


def gone(path: Path, other: Path) -> None:
    path.unlink()


def unreadable(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


SPOILS = [flip_kv, flip_header, cut_short, empty, of_another_chunk, gone, unreadable]


class Folder:
    """A document ingested on disk, and caches that open it."""

    def __init__(self, tiny: Tiny, root: Path):
        self.tiny, self.root = tiny, root
        cache = self.open()
        self.variants: list[Variant] = list(cache.ingest(SYSTEM, DOCUMENT))
        self.system = cache.system_variant(SYSTEM)

    def open(self, linker: str = "first_tokens:k=6") -> ChunkCache:
        return ChunkCache(self.tiny.engine, open_store(self.root, ram_bytes=0, codec="raw"), linker)

    def path(self, variant: Variant) -> Path:
        (path,) = self.root.rglob(f"{variant.key.digest}.kv")
        return path

    def spoil(self, spoil: Spoil, variant: Variant) -> None:
        spoil(self.path(variant), self.path(self.variants[3]))

    @property
    def quarantined(self) -> list[str]:
        return sorted(path.stem for path in (self.root / "quarantine").glob("*.kv"))


@pytest.fixture
def folder(tiny: Tiny, tmp_path: Path) -> Folder:
    return Folder(tiny, tmp_path / "spoilt")


def answer(cache: ChunkCache, segments: list[Segment] = SEGMENTS) -> tuple[list[int], Report]:
    generation = cache.generate(segments, max_tokens=8)
    return list(generation), generation.report


@pytest.mark.parametrize("linker", ["naive", "first_tokens:k=6", "query", "cacheblend"])
@pytest.mark.parametrize("spoil", SPOILS)
def test_a_bad_entry_gives_the_answer_of_no_entry(
    folder: Folder, tiny: Tiny, tmp_path: Path, spoil: Spoil, linker: str
) -> None:
    without = Folder(tiny, tmp_path / "without")
    assert without.open().store.delete(without.variants[SPOILT].key)
    assert prefill_prompt(folder.open(linker), SEGMENTS).report.computed == 0
    folder.spoil(spoil, folder.variants[SPOILT])
    ours, expected = (prefill_prompt(place.open(linker), SEGMENTS) for place in (folder, without))
    assert [chunk.tier for chunk in ours.report.chunks] == ["disk", COMPUTED, "disk"]
    assert ours.report.part == expected.report.part
    assert_close(ours.logits, expected.logits, 1e-6)
    assert_close(ours.buffer.k[:, :, :-1], expected.buffer.k[:, :, :-1], 1e-6)
    assert answer(folder.open(linker))[0] == answer(without.open(linker))[0]


@pytest.mark.parametrize("spoil", [flip_kv, flip_header, cut_short, empty, of_another_chunk])
def test_a_bad_file_is_quarantined_said_and_replaced(
    folder: Folder, caplog: pytest.LogCaptureFixture, spoil: Spoil
) -> None:
    bad, cache = folder.variants[SPOILT], folder.open()
    folder.spoil(spoil, bad)
    with caplog.at_level(logging.WARNING):
        _, report = answer(cache)
    assert folder.quarantined == [bad.key.digest]
    assert bad.key.digest in caplog.text
    assert [chunk.tier for chunk in report.chunks] == ["disk", COMPUTED, "disk"]
    cache.store.check_integrity()
    # Captured again, behind the chunks of this prompt.
    _, report = answer(folder.open())
    assert [chunk.tier for chunk in report.chunks] == ["disk"] * 3
    assert report.incidents == []


def test_what_is_found_while_loading_is_an_incident(folder: Folder) -> None:
    cache = folder.open()
    assert prefill_prompt(cache, SEGMENTS).report.incidents == []
    folder.spoil(flip_kv, folder.variants[SPOILT])
    report = prefill_prompt(cache, SEGMENTS).report
    assert len(report.incidents) == 1
    assert report.incidents[0].startswith("cache entry not used: ")
    assert folder.variants[SPOILT].key.digest in report.incidents[0]


@pytest.mark.parametrize("spoil", [flip_header, cut_short, empty, of_another_chunk])
def test_what_is_found_while_planning_is_an_incident(folder: Folder, spoil: Spoil) -> None:
    folder.spoil(spoil, folder.variants[SPOILT])
    report = prefill_prompt(folder.open(), SEGMENTS).report
    assert len(report.incidents) == 1
    assert report.incidents[0].startswith("cache entry not used: ")
    assert folder.variants[SPOILT].key.digest in report.incidents[0]


def test_a_folder_that_cannot_be_read_is_an_incident(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    folder.spoil(unreadable, folder.variants[SPOILT])
    _, report = answer(folder.open())
    assert any(incident.startswith("cache not searched: cannot read") for incident in report.incidents)
    assert "cache not searched" in caplog.text


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_bad_system_segment_is_computed(folder: Folder, spoil: Spoil) -> None:
    expected = prefill_prompt(folder.open(), SEGMENTS)
    folder.spoil(spoil, folder.system)
    ours = prefill_prompt(folder.open(), SEGMENTS)
    assert (ours.report.system_tier, ours.report.other_computed) == (COMPUTED, len(SYSTEM))
    assert len(ours.report.incidents) == {gone: 0, unreadable: 2}.get(spoil, 1)
    assert_close(ours.logits, expected.logits, 1e-6)
    if spoil is not unreadable:
        assert prefill_prompt(folder.open(), SEGMENTS).report.system_tier == "disk"


def test_the_next_best_variant_serves_where_the_best_is_bad(folder: Folder) -> None:
    list(folder.open().ingest(SYSTEM, [DOCUMENT[3], DOCUMENT[SPOILT]]))
    segments = [SYSTEM, DOCUMENT[0], DOCUMENT[SPOILT], QUESTION]
    assert prefill_prompt(folder.open(), segments).report.chunks[1].exact
    folder.spoil(flip_kv, folder.variants[SPOILT])
    report = prefill_prompt(folder.open(), segments).report
    assert (report.chunks[1].tier, report.chunks[1].exact) == ("disk", False)
    assert len(report.incidents) == 1


def test_histories_survive_the_disk(folder: Folder) -> None:
    cache = ChunkCache(folder.tiny.engine, open_store(folder.root, ram_bytes=0, codec="raw"), "naive", context_chunks=1)
    *_, rolled = cache.ingest(SYSTEM, [DOCUMENT[3], DOCUMENT[0], DOCUMENT[2]])
    assert rolled.key.history
    fetched = cache.store.get(rolled.key)
    assert fetched is not None
    assert fetched.variant.key == rolled.key
    report = prefill_prompt(folder.open("naive"), [SYSTEM, DOCUMENT[0], DOCUMENT[2], QUESTION]).report
    assert (report.chunks[1].tier, report.chunks[1].exact) == ("disk", False)
