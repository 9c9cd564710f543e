"""How many of our files a command, a document and a question walk through: the second half of `make shape`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from app import RagPipeline, Settings
from app.cli import main as ragcache
from tests.test_frame.sources import PACKAGES, ROOT

TEXTS = ("The lighthouse was designed by Ada Brandt in 1871.", "Meerkats keep watch in turns of an hour.")
QUESTION = "Who designed the lighthouse?"


@contextmanager
def walked(files: set[str]) -> Iterator[None]:
    """The files of ours in which a function is called within the block, on any thread that begins in it."""

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        files &= {str(path) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def main() -> None:
    command, document, question = set[str](), set[str](), set[str]()
    with TemporaryDirectory() as folder:
        data, texts = Path(folder, "data"), [Path(folder, f"{number}.txt") for number in range(len(TEXTS))]
        for path, text in zip(texts, TEXTS, strict=True):
            path.write_text(text)
        with RagPipeline(Settings(data_dir=data)) as pipeline:
            pipeline.ingest(texts[:1])
            pipeline.ask(QUESTION)
            with walked(document):
                pipeline.ingest(texts[1:])
            with walked(question):
                pipeline.ask(QUESTION)
        sys.argv = ["ragcache", "ask", QUESTION, "--data-dir", str(data)]
        with walked(command), suppress(SystemExit):
            ragcache()
    rows = {"ragcache ask": command, "another document": document, "another question": question}
    print("\nfiles that are walked through")
    for name, files in rows.items():
        print(f"  {name:<17}{len(files)}")


if __name__ == "__main__":
    main()
