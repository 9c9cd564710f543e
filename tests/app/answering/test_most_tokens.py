"""An answer that came to its most tokens says that it was cut off; one that ends by itself does not."""

from __future__ import annotations

from itertools import chain, repeat

import pytest

from app import RagPipeline
from app.answering.stream import CUT_OFF
from ragcache.engine.torch.sampler import Sampler

QUESTION = "Who designed the lighthouse?"
ANSWER = "The light was built by Aldous Fenn."


@pytest.fixture
def tokens(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of what every answer says, before it ends."""
    template = pipeline.answering.template
    words = template.chunk(ANSWER).ids[:-1]  # without the gap behind a chunk
    said = chain(words, repeat(next(iter(template.stop))))
    monkeypatch.setattr(Sampler, "choose", lambda sampler, logits: next(said))
    return len(words)


def test_it_says_so(pipeline: RagPipeline, tokens: int) -> None:
    stream = pipeline.stream(QUESTION, max_tokens=tokens)
    assert "".join(stream) == ANSWER, "there was no token left to learn that it had ended"
    assert (stream.finish_reason, stream.answer.notes) == ("length", (CUT_OFF,))


def test_one_that_ends_says_nothing(pipeline: RagPipeline, tokens: int) -> None:
    stream = pipeline.stream(QUESTION, max_tokens=tokens + 1)
    assert (stream.answer.text, stream.finish_reason, stream.answer.notes) == (ANSWER, "stop", ())


@pytest.mark.usefixtures("tokens")
def test_a_conversation_keeps_it(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    answer = conversation.ask(QUESTION, max_tokens=3)
    asked, said = conversation.messages
    assert (asked.notes, said.notes) == ((), (CUT_OFF,))
    assert said.content == answer.text != ANSWER
