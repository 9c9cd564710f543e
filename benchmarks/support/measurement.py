"""Each sentence is an answer of its own, over all passages of its source."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.answering import SupportedSentence
from app.answering.support import LEAST, supported
from benchmarks.output import Row, publish
from benchmarks.support import SupportBenchOptions
from benchmarks.support.sentences import LabelledSentence, labelled

if TYPE_CHECKING:
    from app.settings import Settings

Judged = tuple[LabelledSentence, SupportedSentence]


def main(settings: Settings, options: SupportBenchOptions, out: Path) -> None:
    sentences = labelled(options.data)
    judged = [judge(one) for one in sentences]
    halves = {"chosen on": True, "unseen": False}
    rows = [figures(name, [one for one in judged if one[0].chosen_on is chosen]) for name, chosen in halves.items()]
    rows = [{**row, "ms": _milliseconds(sentences)} for row in rows]
    wrong = [
        {"sentence": one.text, "kind": one.kind, "said_by": one.said_by, "told": told.citation, "share": told.share}
        for one, told in judged
        if one.said_by != told.citation
    ]
    publish({**options.settings(), "least": LEAST}, rows, out, {"wrong": wrong})


def judge(one: LabelledSentence) -> Judged:
    found = supported(one.text, one.passages)
    return one, max(found, key=lambda told: told.end - told.start)


def figures(name: str, judged: Sequence[Judged]) -> Row:
    """`right`: of those rightly told as supported, the share with the very passage."""
    said = [one for one in judged if one[0].said_by is not None]
    unsaid = [one for one in judged if one[0].said_by is None]
    told = [one for one in judged if one[1].citation is not None]
    untold = [one for one in judged if one[1].citation is None]
    hits = [one for one in told if one[0].said_by is not None]
    marked = [one for one in untold if one[0].said_by is None]
    return {
        "half": name,
        "sentences": len(judged),
        "precision": _share(len(hits), len(told)),
        "recall": _share(len(hits), len(said)),
        "marked precision": _share(len(marked), len(untold)),
        "marked recall": _share(len(marked), len(unsaid)),
        "right": _share(sum(one.said_by == found.citation for one, found in hits), len(hits)),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _milliseconds(sentences: Sequence[LabelledSentence]) -> float:
    """Of an answer of five sentences over eight passages, the best of a few."""
    sample = [one for one in sentences if len(one.passages) == 8][:5]
    answer, passages = " ".join(one.text for one in sample), sample[0].passages
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        supported(answer, passages)
        seconds.append(time.perf_counter() - started)
    return min(seconds) * 1000
