"""Questions whose right chunks somebody has named, for tuning: JSON lines, each with a document or an excerpt."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from app.errors import MaintenanceError
from app.library import Library
from app.library.catalog.records import Collection, Document

FEWEST, MOST = 10, 1000  # questions; fewer say nothing that their next ones would confirm
LARGEST = 16 << 20  # bytes of their file
FORM = 'each line should be {"question": text} with either "document": its name or title, or "text": an excerpt of it'


@dataclass(frozen=True)
class LabelledQuestion:
    where: str  # file and line
    question: str
    document: str | None
    text: str | None


@dataclass(frozen=True)
class TuningQuestion:
    """A question, and the chunks of which any is right."""

    question: str
    chunks: frozenset[int]


def read_questions(file: Path) -> list[LabelledQuestion]:
    """Raises MaintenanceError for what is not in this form, with the line, and for too few or too many."""
    lines = [(number, line) for number, line in enumerate(_read(file).split("\n"), start=1) if line.strip()]
    if not FEWEST <= len(lines) <= MOST:
        raise MaintenanceError(f"{file} holds {len(lines)} questions: give {FEWEST} to {MOST:,}. {FORM}")
    return [_question(f"{file}, line {number}", line) for number, line in lines]


def placed(library: Library, collection: Collection, labelled: Sequence[LabelledQuestion]) -> list[TuningQuestion]:
    """With their chunks. Raises MaintenanceError for a document that is not there, and an excerpt that no chunk has."""
    by_name = _by_name(library.catalog.documents.all(collection, "ready"))
    excerpts = {one.text: _folded(one.text) for one in labelled if one.text is not None}
    holding: dict[str, set[int]] = {text: set() for text in excerpts}
    if excerpts:
        for chunk, text in library.catalog.chunks.texts(collection):
            folded = _folded(text)
            for excerpt, wanted in excerpts.items():
                if wanted in folded:
                    holding[excerpt].add(chunk)
    # Each once, however many questions ask for it.
    right: dict[str | int, frozenset[int]] = {text: frozenset(chunks) for text, chunks in holding.items()}
    source, found = library.catalog.source(collection), []
    for one in labelled:
        named = one.text if one.text is not None else _document(one, collection, by_name).id
        if isinstance(named, int) and named not in right:
            right[named] = frozenset(source.live_ids({"document": [named]}).tolist())
        if not (chunks := right[named]):
            raise MaintenanceError(
                f"{one.where}: no chunk of collection {collection.name!r} contains {one.text or one.document!r:.100}: "
                "give a shorter excerpt, as it stands in one chunk (`ragcache show DOCUMENT --chunks`)"
            )
        found.append(TuningQuestion(one.question, chunks))
    return found


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise MaintenanceError(f"{file} is larger than {LARGEST >> 20} MiB: give {FEWEST} to {MOST:,} questions")
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MaintenanceError(f"cannot read {file}: {error}. Give a file of JSON lines: {FORM}") from error


def _question(where: str, line: str) -> LabelledQuestion:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MaintenanceError(f"{where} is no JSON ({error}): {FORM}") from error
    if not isinstance(record, dict) or not _is_text(record, "question"):
        raise MaintenanceError(f"{where} has no question: {FORM}")
    named = {name: record[name] for name in ("document", "text") if _is_text(record, name)}
    if len(named) != 1:
        raise MaintenanceError(f"{where} names no document and no text, or both: {FORM}")
    return LabelledQuestion(where, record["question"], named.get("document"), named.get("text"))


def _is_text(record: Mapping[str, Any], name: str) -> bool:
    return isinstance(record.get(name), str) and bool(record[name].strip())


def _by_name(documents: Sequence[Document]) -> Mapping[str, list[Document]]:
    found: dict[str, list[Document]] = {}
    for document in documents:
        for name in dict.fromkeys(_names(document)):
            found.setdefault(name, []).append(document)
    return found


def _names(document: Document) -> Iterator[str]:
    yield from (document.source, PurePath(document.source).name, document.title)


def _document(one: LabelledQuestion, collection: Collection, by_name: Mapping[str, Sequence[Document]]) -> Document:
    assert one.document is not None
    there = by_name.get(one.document, ())
    exact = [document for document in there if document.source == one.document] or there
    if len(exact) == 1:
        return exact[0]
    command = f"`ragcache ls -c {shlex.quote(collection.name)}` shows the whole paths"
    told = f"{len(exact)} documents are called {one.document!r:.100}" if exact else f"no document {one.document!r:.100}"
    raise MaintenanceError(f"{one.where}: {told} in collection {collection.name!r}: {command}")


def _folded(text: str) -> str:
    """Blanks alike: an excerpt may be copied from a page whose lines end elsewhere."""
    return " ".join(text.split())
