"""Files to ingest, of several formats, each with words of its own."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

FORMATS = ("txt", "md", "html", "csv")
SENTENCE = re.compile(r"[A-Z][^\n]{20,300}?[.!?](?=\s)")
PARAGRAPH = 5  # sentences


def write_documents(folder: Path, texts: Sequence[str], count: int, characters: int, seed: int) -> Path:
    """Sentences of the texts, drawn at random and put together to documents of about so many characters."""
    folder.mkdir(parents=True)
    sentences = sorted({found[0] for text in texts for found in SENTENCE.finditer(text)})
    chance = random.Random(seed)
    for number in range(count):
        suffix = FORMATS[number % len(FORMATS)]
        drawn = list(_drawn(sentences, chance, characters, f"This is document {number}."))
        (folder / f"{number:06}.{suffix}").write_text(_written(drawn, suffix, number), encoding="utf-8")
    return folder


def _drawn(sentences: Sequence[str], chance: random.Random, characters: int, first: str) -> Iterator[str]:
    yield first
    length = len(first)
    while length < characters:
        sentence = chance.choice(sentences)
        length += len(sentence)
        yield sentence


def _written(sentences: Sequence[str], suffix: str, number: int) -> str:
    starts = range(0, len(sentences), PARAGRAPH)
    paragraphs = [" ".join(sentences[start : start + PARAGRAPH]) for start in starts]
    match suffix:
        case "md":
            return "\n\n".join(f"## Part {place}\n\n{text}" for place, text in enumerate(paragraphs, 1)) + "\n"
        case "html":
            body = "".join(f"<p>{escape(text)}</p>\n" for text in paragraphs)
            return f"<!DOCTYPE html><html><title>Document {number}</title><body>\n{body}</body></html>"
        case "csv":
            rows = (f'{place},"{text.replace(chr(34), chr(34) * 2)}"' for place, text in enumerate(sentences))
            return "number,note\n" + "\n".join(rows) + "\n"
        case _:
            return "\n\n".join(paragraphs) + "\n"
