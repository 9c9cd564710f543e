"""An answer that repeats itself is stopped, says so, and is whole; what only looks like it goes on."""

from __future__ import annotations

import gc
import weakref
from itertools import cycle

import pytest

from app import RagPipeline
from app.answering.stream import CUT_OFF, REPEATED
from app.prompt import PromptTemplate
from ragcache.engine.torch.decoder import KVBuffer
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.sampler import Sampler
from ragcache.repetition import FEWEST_TOKENS, Repetition

QUESTION = "Who designed the lighthouse?"


@pytest.fixture
def loop(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> str:
    """What every answer says over and over."""
    text = ' -r "git bisect"'
    tokens = cycle(pipeline.answering.template.chunk(text).ids[:-1])  # without the gap behind a chunk
    monkeypatch.setattr(Sampler, "choose", lambda sampler, logits: next(tokens))
    return text.strip()


@pytest.mark.usefixtures("loop")
def test_it_is_stopped_and_says_so(pipeline: RagPipeline) -> None:
    stream = pipeline.stream(QUESTION, max_tokens=900)
    pieces = list(stream)
    answer = stream.answer
    assert answer.notes == (REPEATED,)
    assert answer.text == "".join(pieces)
    assert answer.report.answer_tokens == FEWEST_TOKENS
    assert answer.report.decode_s > 0
    assert all(one.quote for one in answer.citations), "it is whole"


@pytest.mark.usefixtures("loop")
def test_its_kv_is_freed_and_what_it_lacked_is_kept(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.models.language.keeper.settle()  # what the answers before this one lacked is captured in buffers too
    made, finished = list[weakref.ref[KVBuffer]](), list[bool]()
    allocate, cache = TorchEngine.buffer, pipeline.models.cache

    def buffer(engine: TorchEngine, capacity: int, apart: bool = False) -> KVBuffer:
        new = allocate(engine, capacity, apart)
        made.append(weakref.ref(new))
        return new

    monkeypatch.setattr(TorchEngine, "buffer", buffer)
    monkeypatch.setattr(cache, "_finish", lambda segments, era, report: finished.append(True))
    stream = pipeline.stream(QUESTION, max_tokens=900)
    assert stream.answer.notes == (REPEATED,)
    gc.collect()
    assert [one() for one in made] == [None]
    assert finished == [True]


@pytest.mark.usefixtures("loop")
def test_a_conversation_keeps_it(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    answer = conversation.ask(QUESTION, max_tokens=900)
    assert answer.notes == (REPEATED,)
    assert [one.content for one in conversation.messages] == [QUESTION, answer.text]


@pytest.mark.usefixtures("loop")
def test_an_answer_that_ends_before_is_none(pipeline: RagPipeline) -> None:
    answer = pipeline.ask(QUESTION, max_tokens=FEWEST_TOKENS - 1)
    assert answer.notes == (CUT_OFF,)
    assert answer.report.answer_tokens == FEWEST_TOKENS - 1


TEXTS = {
    "a ruler of a wide table": "| setting | default |" * 3 + "\n" + "|---" * 30 + "|\n| a | b |",
    "lines": "\n".join(f"{'-' * 100}\nChapter {place}\n{'=' * 100}" for place in range(12)),
    "rows of numbers": "\n".join(", ".join("0" * 8) for _ in range(5)),
    "a matrix": "[[1, 0, 0, 0],\n [0, 1, 0, 0],\n [0, 0, 1, 0],\n [0, 0, 0, 1]]",
    "a column of the same": "\n".join(f"| {name} | yes | yes | no |" for name in "abcdefghijklmnopqrstuvwxyz"),
    "a refrain": "\n".join(
        f"Verse {one}.\nShow me the way to the next lighthouse, oh, don't ask why.\n" for one in "abcdefgh"
    ),
    "a line three times": "The light was first shown on 1 September 1846, and it has been shown each night since.\n"
    * 3,
    "a countdown": ", ".join(str(number) for number in range(300, 0, -1)),
    "steps": "\n".join(f"{place}. Open the lid, press the button, close the lid." for place in range(1, 30)),
    "dots of a table of contents": "\n".join(f"Chapter {place} {'.' * 90} {place * 7}" for place in range(20)),
    "code": "        }\n    }\n}\n" * 9,
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_repeat_things_with_reason(template: PromptTemplate, name: str) -> None:
    repetition = Repetition()
    tokens = template.chunk(TEXTS[name]).ids
    assert len(tokens) > 40
    assert not any(map(repetition.add, tokens))


@pytest.mark.parametrize("text", [' -r "git bisect"', "I don't know. ", "The light, the ", "na ", "光", "* \n", "0"])
def test_texts_that_never_end(template: PromptTemplate, text: str) -> None:
    repetition = Repetition()
    assert any(map(repetition.add, template.chunk(text * 300).ids))
