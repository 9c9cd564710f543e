"""Jupyter notebooks as Markdown: texts as they are, programs as code, and what they printed, within bounds.

Versions 3 and 4 of the format; the older one has sheets of cells, and headings of their own.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from app.errors import printable
from app.loaders.base import Parsed, SourceFile
from app.loaders.blocks import fenced
from app.loaders.encodings import decode
from app.loaders.html import markdown_of
from app.loaders.marks import closed, with_paired_fences
from app.loaders.records import read_json
from app.loaders.text import first_heading

MOST_PRINTED = 4_000  # characters of each cell: a loop prints a million lines that tell nothing
# Within a text, such as `data:image/svg+xml;charset=utf-8;base64,…`.
IMAGE = re.compile(r"data:[\w.+-]{1,40}/[\w.+-]{1,40}(?:;[\w.+-]{1,40}=[^\s;,]{0,80}){0,9};base64,[\w+/=]*+")
TERMINAL = re.compile(r"\x1b\[[0-9;?]{0,40}+[A-Za-z]")  # colours
NO_TEXT = re.compile(r"<[^\n]{0,200}>")  # what a program prints of an object that is shown as a page or an image
LANGUAGE = re.compile(r"[\w+#.-]{1,20}")
# What version 3 calls the forms of a result.
TEXTS = {"html": "text/html", "text": "text/plain", "png": "image/png", "jpeg": "image/jpeg", "svg": "image/svg+xml"}
PRINTED = "Output:"
logger = logging.getLogger(__name__)


def load_notebook(source: SourceFile) -> Parsed:
    notebook = read_json(source, decode(source))
    reader = _Reader(_language(_metadata(notebook)))
    text = "\n\n".join(source.bounded(reader.blocks(_cells(source, notebook))))
    if reader.left_out:
        told = ", ".join(f"{number:,} {what}" for what, number in reader.left_out.items())
        logger.warning("%s: left out are %s", printable(source.path), told)
    return Parsed(text, "markdown", first_heading("\n\n".join(reader.said)) or source.name)


def _cells(source: SourceFile, notebook: object) -> list[object]:
    """Of all sheets, where it has any."""
    if isinstance(notebook, dict):
        sheets = notebook.get("worksheets")
        holders = sheets if isinstance(sheets, list) else [notebook]
        found = [one.get("cells") for one in holders if isinstance(one, dict)]
        cells = [cells for cells in found if isinstance(cells, list)]
        if cells:
            return [cell for several in cells for cell in several]
    raise source.error("is no Jupyter notebook: it has no list of cells; get the file again, or rename it to .json")


def _metadata(notebook: object) -> dict[str, Any]:
    found = notebook.get("metadata") if isinstance(notebook, dict) else None
    return found if isinstance(found, dict) else {}


def _language(metadata: dict[str, Any]) -> str:
    for holder, key in (("language_info", "name"), ("kernelspec", "language")):
        found = metadata.get(holder)
        if isinstance(found, dict) and (name := _name(found.get(key))):
            return name
    return ""


def _name(value: object) -> str:
    return value if isinstance(value, str) and LANGUAGE.fullmatch(value) else ""


@dataclass
class _Reader:
    language: str
    said: list[str] = field(default_factory=list)  # the first texts: headings of a program are comments
    left_out: Counter[str] = field(default_factory=Counter)

    def blocks(self, cells: list[object]) -> Iterator[str]:
        """A fence that a cell leaves open ends before the next one."""
        for block, following in pairwise(chain(self._blocks(cells), [""])):
            yield closed(block) if following else block

    def _blocks(self, cells: list[object]) -> Iterator[str]:
        for cell in cells:
            if isinstance(cell, dict):
                yield from filter(None, self._cell(cell))
            else:
                self.left_out["cells that are none"] += 1

    def _cell(self, cell: dict[str, Any]) -> Iterator[str]:
        kind = cell.get("cell_type")
        if kind == "code":
            code = _joined(cell.get("source", cell.get("input")))
            yield fenced(code, self.language or _name(cell.get("language")))
            yield self._printed(cell.get("outputs"))
            return
        text = self._without_images(_joined(cell.get("source"))).strip("\r\n").rstrip()
        if kind == "heading" and text:
            level = str(cell.get("level"))
            text = "#" * (int(level) if level in tuple("123456") else 1) + " " + " ".join(text.split())
        if kind != "raw":
            self.said.append(text)
        yield with_paired_fences(text) if kind == "raw" else text

    def _printed(self, outputs: object) -> str:
        found = [one for one in outputs if isinstance(one, dict)] if isinstance(outputs, list) else []
        parts, room = [], MOST_PRINTED
        for output in found:
            part = self._output(output).strip("\n").rstrip()
            if part and room <= 0:
                self.left_out["outputs behind long ones"] += 1
                continue
            if len(part) > room:
                self.left_out[f"ends of outputs above {MOST_PRINTED:,} characters"] += 1
                part = f"{part[:room]}…"
            room -= len(part)
            parts.append(part)
        block = fenced("\n".join(filter(None, parts)))
        return f"{PRINTED}\n\n{block}" if block else ""

    def _output(self, output: dict[str, Any]) -> str:
        kind = output.get("output_type")
        if kind == "stream":
            return _as_shown(_joined(output.get("text")))
        if kind in ("error", "pyerr"):
            name, value = (_joined(output.get(key)) for key in ("ename", "evalue"))
            return _as_shown(f"{name}: {value}")
        data = output.get("data")
        given = data if isinstance(data, dict) else {TEXTS.get(key, key): value for key, value in output.items()}
        return self._told(given)

    def _told(self, data: dict[str, Any]) -> str:
        """The text among the forms of one result: what a program would print, where that is more than a name."""
        plain = _as_shown(_joined(data.get("text/plain"))).strip()
        self.left_out["images"] += any(key.startswith("image/") for key in data)
        self.left_out += Counter()  # none are not told
        if plain and not NO_TEXT.fullmatch(plain):
            return plain
        for kind in ("text/markdown", "text/latex"):
            if text := _joined(data.get(kind)):
                return self._without_images(text)
        if any(key != "text/plain" and "/" in key for key in data):
            return markdown_of(_joined(data.get("text/html")), escapes=False)[0]
        return plain

    def _without_images(self, text: str) -> str:
        text, number = IMAGE.subn("", text)
        if number:
            self.left_out["images"] += number
        return text


def _joined(value: object) -> str:
    """A text, which may stand as a list of its lines."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _as_shown(text: str) -> str:
    """In a terminal: without colours, and of a line that is written anew, as progress is, what came last."""
    lines = TERMINAL.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
