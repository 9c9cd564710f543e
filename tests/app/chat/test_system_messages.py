"""Context caches behind a system message of a client's own."""

from __future__ import annotations

from app import RagPipeline
from app.chat.chat import ChatOptions
from app.chat.messages import CachePart, ChatTurn, TextPart
from tests.app.chat.test_contexts import ANN, TEXTS, make, pipeline

__all__ = ["pipeline"]


def test_behind_an_owners_system_message_nothing_is_stored(pipeline: RagPipeline) -> None:
    """He may have another one each time, and all of it would take the place of what everybody asks for."""
    contexts = pipeline.contexts
    made = make(contexts, *TEXTS, who=ANN)
    before = pipeline.models.store.kept.entries
    for day in ("Monday", "Tuesday"):
        turns = [
            ChatTurn("system", (TextPart(f"It is {day}."),)),
            ChatTurn("user", (CachePart(made), TextPart("When?"))),
        ]
        options = ChatOptions(max_tokens=4, border=ANN[1], owner=ANN[0])
        own = pipeline.chat.start(turns, options, contexts.resolver(ANN[0])).answer
        pipeline.settle()
        assert own.text == pipeline.chat.start(turns, options, contexts.resolver(ANN[0])).answer.text
    assert pipeline.models.store.kept.entries == before
    assert pipeline.chat.start(
        turns, ChatOptions(max_tokens=4, border=ANN[1]), contexts.resolver(ANN[0])
    ).answer.text  # the operator
    pipeline.settle()
    assert pipeline.models.store.kept.entries > before
