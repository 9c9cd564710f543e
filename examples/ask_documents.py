"""Ask questions about a folder of documents from Python.

    python examples/ask_documents.py FOLDER

Without a folder it reads three short documents that come with RAGCache.
"""

from __future__ import annotations

import sys
from pathlib import Path

import app.samples
from app import RagPipeline, Settings

SAMPLES = Path(app.samples.__file__).parent


def main(folder: Path, settings: Settings) -> None:
    with RagPipeline(settings) as pipeline:
        # Split, embedded, indexed, and the KV of every chunk computed. The next time only what has changed is.
        ingested = pipeline.ingest(folder, glob=["*.md"])
        print(f"{ingested.added} documents added, {ingested.unchanged} unchanged")

        # An answer as it comes; each citation knows its document, its page and its characters.
        with pipeline.stream("Who designed the lighthouse?") as stream:
            for piece in stream:
                print(piece, end="", flush=True)
        print()
        for citation in stream.answer.citations:
            print(f"  [{citation.number}] {citation.place}: {citation.quote.text if citation.quote else ''}")

        # A follow-up in a conversation, which the catalog keeps.
        conversation = pipeline.conversation()
        conversation.ask("How tall is the lighthouse?")
        answer = conversation.ask("And when was it first lit?")
        report = answer.report
        print(answer.text)
        print(f"  first token after {report.ttft_s:.2f} s, {report.reused} tokens reused, {report.repaired} repaired")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES, Settings(collection="examples", max_tokens=32))
