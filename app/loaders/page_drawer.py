"""The process that looks at one page of one PDF document, and ends: a file may crash it, or never come to an end.

Its request is a line of JSON on stdin. It answers on stdout: a line of JSON, and behind it the image where one is asked
for. JSON and bytes, since a document may have taken this process over.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

from app.errors import LoadError
from app.loaders import read_file
from app.loaders.base import ParseLimits, SourceFile
from app.loaders.confinement import OUT_OF_MEMORY, confine, confine_time, seal
from app.loaders.pdf_pages import LinePart, NoSuchPage, draw_page, find_places

CHANGED = "changed"
MISSING = "missing"
BAD = "bad"


def serve(parent: int, memory: int, seconds: float) -> None:
    """`memory`: bytes that this process may take; `seconds` of a core."""
    confine(parent, memory)
    confine_time(seconds)
    seal()
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints must not come between
        try:
            _answer(json.loads(sys.stdin.buffer.readline()), answers)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)


def _answer(request: dict[str, Any], answers: BinaryIO) -> None:
    image = b""
    try:
        told, image = _looked(request)
    except NoSuchPage as error:
        told = {"problem": MISSING, "reason": f"it has {error.count:,} pages"}
    except LoadError as error:
        told = {"problem": BAD, "reason": error.reason}
    answers.write(json.dumps(told).encode() + b"\n")
    answers.write(image)


def _looked(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    path, number = Path(request["path"]), request["page"]
    data = read_file(path, ParseLimits())
    if hashlib.sha256(data).hexdigest() != request["sha256"]:
        return {"problem": CHANGED}, b""
    source = SourceFile(path, data, ParseLimits())
    if request["dpi"] is not None:
        return {}, draw_page(source, number, request["dpi"])
    parts = [LinePart(text, tuple(box), start, end) for text, box, start, end in request["parts"]]
    places = find_places(source, number, parts)
    return {"width": places.width, "height": places.height, "boxes": places.boxes}, b""
