"""Questions to begin with, made of what documents are called and how they begin: always the same, by no model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from app.errors import can_be_shown
from app.library.catalog import Catalog
from app.library.catalog.records import Collection, Found

MOST = 4
DOCUMENTS = 24  # that are looked at
CHUNKS = 4  # of the beginning of each
LONGEST = 90  # characters of what a question names
_BLANKS = re.compile(r"\s+")
_NUMBER = re.compile(r"^(?:[§#]?\s*\d+(?:\.\d+)*[.):]?|[IVX]+\.)\s+")
# "Varn Skerry is a low rock …": a sentence that says what something is. Of the rest nobody knows what it is about.
_WORD = r"[^\s,.;:()\"“”]+"
_SUBJECT = re.compile(
    rf"^(?P<subject>(?:The|A|An)\s+{_WORD}(?:\s+{_WORD}){{0,6}}?|[A-Z]{_WORD}(?:\s+[A-Z]{_WORD}){{0,4}})"
    r"\s+(?P<verb>is|are|was|were)\s+(?:an?|the|one)\b"
)
_PRONOUNS = {"It", "This", "That", "These", "Those", "There", "He", "She", "They", "We", "Here", "What", "You", "I"}
_EMPTY = {"contents", "introduction", "abstract", "references", "summary", "overview", "untitled", "index", "notes"}


def suggested_questions(catalog: Catalog, collection: Collection) -> list[str]:
    """Up to MOST, of as many documents as there are among the first."""
    listed = catalog.documents.page(collection, DOCUMENTS, state="ready")
    places = [(one.document.id, ordinal) for one in listed for ordinal in range(CHUNKS)]
    of_each: dict[int, list[Found]] = {one.document.id: [] for one in listed}
    for found in catalog.chunks.at(places) if places else ():
        of_each[found.document.id].append(found)
    ordered = (sorted(one, key=lambda found: found.chunk.ordinal) for one in of_each.values())
    return first_of_each([list(questions_of(one)) for one in ordered if one])


def first_of_each(questions: Sequence[Sequence[str]]) -> list[str]:
    """One of each document, then the second of each, as long as there is room."""
    turns = (one for turn in zip_longest(*questions) for one in turn if one is not None)
    return list(dict.fromkeys(turns))[:MOST]


def questions_of(chunks: Sequence[Found]) -> Iterator[str]:
    """Of a document by its first chunks, the most telling one first."""
    title = _named(chunks[0].document.title)
    headings = [_named(name) for found in chunks for name in found.chunk.heading]
    yield from dict.fromkeys(name for name in headings if name.endswith("?"))
    yield from _subjects(found.chunk.text for found in chunks)
    if title:
        yield f"What is “{title}” about?"
    for name in dict.fromkeys(headings):
        if _tells(name) and name.casefold() != title.casefold():
            yield f"What is said about “{name}”?"


def _subjects(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for line in text.splitlines():
            found = _SUBJECT.match(line.strip())
            if found is None or found["subject"].split()[0] in _PRONOUNS:
                continue
            if not (subject := _named(found["subject"])):
                continue
            article = subject.split()[0] in ("The", "A", "An")
            yield f"What {found['verb']} {subject[0].lower() + subject[1:] if article else subject}?"


def _tells(name: str) -> bool:
    return not name.endswith("?") and len(name) > 2 and name.casefold() not in _EMPTY


def _named(text: str) -> str:
    """In one line without its number; nothing where it is too long to be a name."""
    line = _NUMBER.sub("", _BLANKS.sub(" ", text).strip()).strip("#*_ ")
    return line if can_be_shown(line) and len(line) <= LONGEST else ""
