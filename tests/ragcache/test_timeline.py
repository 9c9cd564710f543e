"""What a report tells of when each side did what, and its picture."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.drawing import COLOURS, time_line
from ragcache.engine.vllm.told_report import fill
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.report import Report
from ragcache.store import open_store
from ragcache.timeline import COMPUTE, LINK, LOAD, MOST, PLACE, Meeting, Stretch, meeting
from tests.tiny import Tiny, make_chunks, make_question, make_system

LEAD, QUESTION = make_system(), make_question()
DOCUMENT = make_chunks(20, 31, 18, 25)
FRONT = 2


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    made = DiskThreads(1, "test-timeline", 20.0)
    yield made
    made.close()


def linked(tiny: Tiny, folder: Path, loader: SequentialLoader) -> Report:
    store = open_store(folder, ram_bytes=0, codec="raw")
    cache = ChunkCache(tiny.engine, store, context_chunks=len(DOCUMENT), keep_missed=False, loader=loader)
    store.put(cache.system_variant(LEAD))
    list(cache.ingest(LEAD, DOCUMENT))
    return prefill_prompt(cache, [LEAD, *DOCUMENT, QUESTION], "naive").report


def test_a_report_tells_what_each_side_did_and_where_they_met(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    report = linked(tiny, tmp_path, SequentialLoader(threads, front=FRONT))
    edges = [0, *(len(LEAD) + sum(map(len, DOCUMENT[:count])) for count in range(len(DOCUMENT) + 1))]
    spans = {place - 1: (edges[place], edges[place + 1]) for place in range(len(edges) - 1)}
    by_kind = {kind: [one for one in report.timeline if one.kind == kind] for kind in COLOURS}
    behind = {-1, *range(FRONT, len(DOCUMENT))}
    for kind in (LOAD, PLACE):
        assert {one.piece: (one.first, one.last) for one in by_kind[kind]} == {at: spans[at] for at in behind}
    assert [(one.piece, one.first, one.last) for one in by_kind[COMPUTE]] == [
        (place, *spans[place]) for place in range(FRONT)
    ]
    assert [(one.first, one.last) for one in by_kind[LINK]] == [(0, report.prompt_tokens)]
    assert all(0 <= one.began <= one.ended for one in report.timeline)
    placed = {one.piece: one.began for one in by_kind[PLACE]}
    assert all(one.ended <= placed[one.piece] for one in by_kind[LOAD])
    met = meeting(report.timeline)
    assert met is not None
    assert met.position == edges[1 + FRONT]
    assert met.seconds <= by_kind[LINK][0].began
    told = json.loads(json.dumps(report.to_dict()))["timeline"]
    assert [Stretch(**one) for one in told] == report.timeline


def test_sides_of_which_one_did_all_have_not_met() -> None:
    read, computed = Stretch(LOAD, 0, 0, 9, 0.0, 1.0), Stretch(COMPUTE, 0, 0, 9, 0.0, 1.0)
    assert meeting([read]) is None
    assert meeting([computed]) is None
    assert meeting([computed, Stretch(LOAD, 1, 9, 20, 0.5, 3.0)]) == Meeting(9, 3.0)
    overtaken = Stretch(LOAD, 0, 0, 9, 0.0, 5.0)
    assert meeting([computed, overtaken]) is None, "what was computed did not need it"


def test_a_time_line_has_a_bound() -> None:
    report = Report("full", 9, 8, 1)
    for place in range(MOST + 5):
        report.note(Stretch(LOAD, place, 0, 1, 0.0, 1.0))
    assert len(report.timeline) == MOST


def test_a_report_of_vllm_brings_it_back() -> None:
    told, report = Report("naive", 9, 8, 1), Report("naive", 9, 8, 1)
    told.note(Stretch(LOAD, 0, 0, 8, 0.25, 0.5))
    fill(report, json.loads(json.dumps(told.to_dict())))
    assert report == told


def test_the_picture_holds_every_stretch_in_its_place() -> None:
    report = Report("naive", 100, 90, 10, ttft_s=4.0)
    report.note(Stretch(LOAD, 1, 50, 90, -1.0, 2.0))  # it began before the engine was free
    report.note(Stretch(COMPUTE, 0, 0, 50, 0.0, 1.0))
    root = ElementTree.fromstring(time_line({"a < b": report, "other": report}))
    name = "{http://www.w3.org/2000/svg}"
    told = [one for one in root.iter(f"{name}rect") if one.find(f"{name}title") is not None]
    assert len(told) == 2 * 2 * 2, "of two panels two stretches, among the tokens and in their lanes"
    load, computed = told[:2]
    assert (load.get("fill"), computed.get("fill")) == (COLOURS[LOAD], COLOURS[COMPUTE])
    assert float(load.get("y") or 0) == float(computed.get("y") or 0) + float(computed.get("height") or 0)
    assert float(load.get("width") or 0) == pytest.approx(2 * float(computed.get("width") or 0), rel=0.01)
    assert load.get("x") == computed.get("x")
    texts = ["".join(one.itertext()) for one in root.iter(f"{name}text")]
    assert "a < b" in texts
    assert any(re.search("met behind 50 tokens, all there after 2.00 s", text) for text in texts)


def test_a_report_without_a_time_line_has_a_picture() -> None:
    ElementTree.fromstring(time_line({"nothing": Report("full", 0, 0, 0)}))
