"""One look at one page, in a process that ends with it or is ended."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from app.client.amounts import size
from app.errors import LoadError, NotFound
from app.loaders.base import Box
from app.loaders.confinement import LEAST_MEMORY, OUT_OF_MEMORY
from app.loaders.page_drawer import BAD, CHANGED, MISSING
from app.loaders.pdf_pages import LinePart

# The child finds the packages where we did, and none in the folder that it is started in.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from app.loaders.page_drawer import serve; serve(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))"
)
LARGEST = 128 << 20  # bytes of an answer: an image that nothing makes smaller has 64 MB
AT_ONCE = 1 << 16  # bytes
ENDING_S = 5.0  # from the end of its answers to its own


@dataclass(frozen=True)
class DrawingLimits:
    """Of one process."""

    core_s: float = 10.0
    wall_s: float = 30.0
    memory: int = LEAST_MEMORY  # bytes


@dataclass(frozen=True)
class PageLook:
    """At a page of a file that has this content."""

    path: Path
    sha256: str
    number: int
    name: str  # of the document, for who is told of errors

    def image(self, dpi: int, limits: DrawingLimits) -> bytes:
        """A PNG."""
        return self._asked({"dpi": dpi}, limits)[1]

    def places(self, parts: Sequence[LinePart], limits: DrawingLimits) -> tuple[float, float, Sequence[Box | None]]:
        """The sides of the page in points, and a box for each part."""
        told = [(part.text, part.box, part.start, part.end) for part in parts]
        answer, _ = self._asked({"dpi": None, "parts": told}, limits)
        if len(answer.boxes) != len(parts):
            raise self._error("crashes the program that shows it")
        return answer.width, answer.height, answer.boxes

    def _asked(self, wanted: dict[str, Any], limits: DrawingLimits) -> tuple[_Answer, bytes]:
        request = {"path": str(self.path), "sha256": self.sha256, "page": self.number, **wanted}
        head, _, rest = self._run(json.dumps(request).encode() + b"\n", limits).partition(b"\n")
        try:
            answer = _Answer.model_validate_json(head)
        except ValidationError:
            raise self._error("crashes the program that shows it") from None
        if answer.problem == MISSING:
            raise NotFound(f"{self.name!r} has no page {self.number}: {answer.reason}")
        if answer.problem == CHANGED:
            raise NotFound(f"{self.name!r} has changed since it was ingested: ingest it again")
        if answer.problem == BAD:
            raise self._error(answer.reason)
        return answer, rest

    def _run(self, request: bytes, limits: DrawingLimits) -> bytes:
        arguments = [json.dumps(sys.path), str(os.getpid()), str(limits.memory), str(limits.core_s)]
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # PDFium complains there
            process_group=0,
            bufsize=0,
        )
        assert child.stdin is not None and child.stdout is not None
        with child.stdin, child.stdout:
            try:
                told = _exchanged(child.stdin, child.stdout, request, monotonic() + limits.wall_s)
                if told is not None:
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(ENDING_S)
            finally:
                with suppress(ProcessLookupError, PermissionError):  # nobody is left, or all of them have ended
                    os.killpg(child.pid, signal.SIGKILL)
                child.kill()
                status = child.wait()
        if told is None or status:
            raise self._error(_reason(status or -signal.SIGKILL, limits))
        return told

    def _error(self, reason: str) -> LoadError:
        return LoadError(Path(self.name), f"{reason} (page {self.number})")


def _exchanged(requests: IO[bytes], answers: IO[bytes], request: bytes, end: float) -> bytes | None:
    """What is answered until nobody holds that pipe any more, be it a process that the child has started; None where it
    is too much, or somebody still holds it at that moment.
    """
    left, told = memoryview(request), bytearray()
    with selectors.DefaultSelector() as ready:
        for pipe, event in ((requests, selectors.EVENT_WRITE), (answers, selectors.EVENT_READ)):
            os.set_blocking(pipe.fileno(), False)
            ready.register(pipe, event)
        while (seconds := end - monotonic()) > 0 and len(told) <= LARGEST:
            for key, _ in ready.select(seconds):
                if key.fileobj is answers:
                    if not (block := os.read(key.fd, AT_ONCE)):
                        return bytes(told)
                    told += block
                    continue
                with suppress(BrokenPipeError):  # it may have ended already
                    left = left[os.write(key.fd, left[:AT_ONCE]) :]
                    if left:
                        continue
                ready.unregister(requests)
                requests.close()
    return None


class _Answer(BaseModel):
    problem: str | None = None
    reason: str = ""
    width: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    height: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    boxes: list[Box | None] = []


def _reason(status: int, limits: DrawingLimits) -> str:
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"takes more than {limits.core_s:,.0f} seconds to be shown, or more memory than there is"
    if status == OUT_OF_MEMORY:
        return f"needs more memory to be shown than the {size(limits.memory)} that it may take"
    return f"crashes the program that shows it (exit status {status})"
