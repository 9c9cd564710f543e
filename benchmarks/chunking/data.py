"""Corpora and questions whose answers are marked in them, for the chunking benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import read_text
from ragcache.errors import ConfigError

Span = tuple[int, int]
FORM = 'each line should be {"corpus": name, "question": text, "references": [{"start", "end", "text"}, …]}'
# What a file name tells of a document.
KINDS = {".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html", ".txt": "prose"}


@dataclass(frozen=True)
class Corpus:
    name: str
    text: str
    kind: str


@dataclass(frozen=True)
class SpanQuestion:
    text: str
    corpus: str
    references: tuple[Span, ...]  # ascending, apart from each other


def read_questions(file: Path) -> tuple[SpanQuestion, ...]:
    """Raises ConfigError for what is not in this form, with the line."""
    questions = tuple(_question(where, record) for where, record in _records(file))
    if not questions:
        raise ConfigError(f"{file} holds no questions: {FORM}")
    return questions


def read_corpora(folder: Path, questions: tuple[SpanQuestion, ...]) -> Mapping[str, Corpus]:
    """The corpora that the questions are about. Raises ConfigError where one lacks or is shorter than its answers."""
    corpora = {name: _corpus(folder, name) for name in sorted({question.corpus for question in questions})}
    for question in questions:
        last, length = question.references[-1][1], len(corpora[question.corpus].text)
        if last > length:
            raise ConfigError(
                f"the answer to {question.text!r} ends at character {last}, and {question.corpus} has {length}: "
                "these questions are about another version of it"
            )
    return corpora


def united(spans: list[Span]) -> tuple[Span, ...]:
    """The characters that the spans hold, each once."""
    united: list[Span] = []
    for start, end in sorted(spans):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return tuple(united)


def _records(file: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if line.strip():
            where = f"{file}, line {number}"
            try:
                yield where, json.loads(line)
            except ValueError as error:
                raise ConfigError(f"{where} is no JSON ({error}): {FORM}") from error


def _question(where: str, record: Any) -> SpanQuestion:
    try:
        text, corpus = record["question"], record["corpus"]
        spans = [(int(reference["start"]), int(reference["end"])) for reference in record["references"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{where} lacks {error}: {FORM}") from error
    if not spans or any(not 0 <= start < end for start, end in spans):
        raise ConfigError(f"{where} has the references {spans}: give at least one, each with 0 <= start < end")
    return SpanQuestion(str(text), str(corpus), united(spans))


def _corpus(folder: Path, name: str) -> Corpus:
    found = sorted(path for path in folder.glob("*.*") if path.stem == name and path.suffix.lower() in KINDS)
    if len(found) != 1:
        raise ConfigError(f"{folder} holds {len(found)} texts named {name} ({', '.join(KINDS)}), and should hold one")
    return Corpus(name, read_text(found[0]), KINDS[found[0].suffix.lower()])
