"""The labelled sentences, with the passages that they are said to stand on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.answering.support import Passage
from app.samples import read_samples

FILE = Path(__file__).parent / "labelled_sentences.json"


@dataclass(frozen=True)
class LabelledSentence:
    """`said_by`: the place of the passage that says it; None where none does. `chosen_on`: whether figures in the code
    were chosen on it.
    """

    text: str
    passages: tuple[Passage, ...]
    said_by: int | None
    kind: str
    chosen_on: bool


def labelled(data: Path | None = None) -> list[LabelledSentence]:
    """`data`: the folder of chunking_eval, without which sentences about its corpora are left out."""
    told = json.loads(FILE.read_text(encoding="utf-8"))
    sources = {name: _passages(source, data) for name, source in told["sources"].items()}
    return [
        LabelledSentence(one["sentence"], passages, one["said_by"], one["kind"], one["source"] in told["chosen_on"])
        for one in told["sentences"]
        if (passages := sources[one["source"]])
    ]


def _passages(source: Mapping[str, Any], data: Path | None) -> tuple[Passage, ...]:
    if "texts" in source:
        return tuple(map(Passage, source["texts"]))
    if "sample" in source:
        title, *paragraphs = read_samples()[source["sample"]].strip().split("\n\n")
        return tuple(Passage(one, title.lstrip("# ")) for one in paragraphs)
    if data is None:
        return ()
    text = (data / f"{source['corpus']}.md").read_text(encoding="utf-8")
    return tuple(Passage(text[start:end]) for start, end in source["spans"])
