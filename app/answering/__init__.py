"""From a question to a cited answer.

    from app import RagPipeline, Settings

    with RagPipeline(Settings()) as pipeline:
        pipeline.ingest(["docs"])
        answer = pipeline.ask("Who designed the lighthouse?")
        print(answer.text, answer.citations[0].place)

Importing this brings no model library; the first question does.
"""

from __future__ import annotations

from app.answering.answer import Answer, AskOptions, Citation, Quote, Retrieved, told
from app.answering.conversation import Conversation
from app.answering.pipeline import RagPipeline
from app.answering.stream import AnswerStream, AsyncAnswerStream

__all__ = [
    "Answer",
    "AnswerStream",
    "AskOptions",
    "AsyncAnswerStream",
    "Citation",
    "Conversation",
    "Quote",
    "RagPipeline",
    "Retrieved",
    "told",
]
