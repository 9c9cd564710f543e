"""Questions and documents, from either of two forms, told apart by what is in the files.

Passages given: a file of JSON lines, each with `question`, `answers` and `contexts`, the passages in prompt order.
Passages to retrieve: a folder of `*.md` corpora with a file of JSON lines, each with `question`, `corpus` and
`references`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragcache.errors import ConfigError

FORMS = (
    "give a file of JSON lines with question, answers and contexts, "
    "or a folder with *.md corpora and JSON lines with question and corpus"
)


@dataclass(frozen=True)
class Question:
    name: str  # unique in its dataset
    text: str
    answers: tuple[str, ...] = ()  # any of them is right; none where nobody wrote one down
    contexts: tuple[str, ...] = ()  # the passages it comes with, each from a document of its own
    corpus: str | None = None  # the document to retrieve from, where it comes with none


@dataclass(frozen=True)
class Dataset:
    questions: tuple[Question, ...]
    digest: str  # of all bytes that were read
    corpora: Mapping[str, str] = field(default_factory=dict)  # texts by name

    def sample(self, limit: int | None, seed: int) -> Dataset:
        """So many questions at random, in their order; all where there are no more."""
        if limit is None or limit >= len(self.questions):
            return self
        chosen = sorted(random.Random(seed).sample(range(len(self.questions)), limit))
        return Dataset(tuple(self.questions[place] for place in chosen), self.digest, self.corpora)


def read_dataset(path: Path) -> Dataset:
    """Raises ConfigError for what is in neither form, with the place."""
    file = _questions_file(path)
    records = list(_records(file))
    if not records:
        raise ConfigError(f"{file} holds no questions: {FORMS}")
    if "contexts" in records[0][1]:
        return Dataset(tuple(_given(where, record) for where, record in records), _digest([file]))
    if "corpus" in records[0][1]:
        return _read_retrieved(file, records)
    raise ConfigError(f"{records[0][0]} has neither contexts nor a corpus: {FORMS}")


def _questions_file(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise ConfigError(f"no data in {path}: {FORMS}")
    found = sorted(path.glob("*.jsonl"))
    if len(found) != 1:
        raise ConfigError(f"{path} holds {len(found)} *.jsonl files and should hold one: {FORMS}")
    return found[0]


def _records(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each record with where it stands."""
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{where} is no JSON ({error}): {FORMS}") from error
        if not isinstance(record, dict):
            raise ConfigError(f"{where} is no JSON object: {FORMS}")
        yield where, record


def read_text(file: Path) -> str:
    """Raises ConfigError."""
    try:
        # Without universal newlines: offsets that others took count the characters as they are.
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error


def _given(where: str, record: dict[str, Any]) -> Question:
    contexts = _strings(where, record, "contexts")
    if not contexts:
        raise ConfigError(f"{where} has no contexts: {FORMS}")
    answers = _strings(where, record, "answers")
    return Question(_name(where), _string(where, record, "question"), answers, contexts)


def _read_retrieved(file: Path, records: list[tuple[str, dict[str, Any]]]) -> Dataset:
    questions = tuple(
        Question(_name(where), _string(where, record, "question"), corpus=_string(where, record, "corpus"))
        for where, record in records
    )
    files = {name: file.with_name(f"{name}.md") for name in sorted({str(question.corpus) for question in questions})}
    lacking = [corpus.name for corpus in files.values() if not corpus.is_file()]
    if lacking:
        raise ConfigError(f"{file} asks about {', '.join(lacking)}, which {file.parent} does not hold")
    corpora = {name: read_text(corpus) for name, corpus in files.items()}
    return Dataset(questions, _digest([file, *files.values()]), corpora)


def _name(where: str) -> str:
    return where.rpartition(", ")[2].replace(" ", "-")


def _string(where: str, record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: {key} is {value!r} and should be a text")
    return value


def _strings(where: str, record: dict[str, Any], key: str) -> tuple[str, ...]:
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        raise ConfigError(f"{where}: {key} should be a list of texts")
    return tuple(value)


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
