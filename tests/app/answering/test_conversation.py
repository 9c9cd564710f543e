from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from app import RagPipeline, Settings
from app.answering import Citation
from app.answering.conversation import turns
from app.errors import CatalogError
from app.library.catalog.records import NewMessage
from ragcache.types import Segment, System, Text

FIRST, SECOND = "Who designed the lighthouse?", "How tall is it?"


@pytest.fixture
def prompts(pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[Segment]]]:
    """All prompts that the model is given."""
    seen: list[list[Segment]] = []
    cache = pipeline.answering.cache
    generate = cache.generate
    monkeypatch.setattr(
        cache, "generate", lambda segments, **more: (seen.append(segments), generate(segments, **more))[1]
    )
    yield seen


def test_messages_are_stored_with_citations_and_report(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    assert (conversation.id, conversation.messages) == (None, [])
    answer = conversation.ask(FIRST)
    asked, said = conversation.messages
    assert (asked.role, asked.content, asked.citations, asked.report) == ("user", FIRST, (), None)
    assert (said.role, said.content) == ("assistant", answer.text)
    assert tuple(Citation.from_dict(one) for one in said.citations) == answer.citations
    assert said.report == json.loads(json.dumps(answer.report.to_dict()))
    assert conversation.id is not None
    assert pipeline.library.catalog.conversations.get(conversation.id).title == FIRST


def test_a_follow_up_is_a_turn_behind_the_chunks(pipeline: RagPipeline, prompts: list[list[Segment]]) -> None:
    conversation = pipeline.conversation()
    first = conversation.ask(FIRST)
    second = conversation.ask(SECOND)
    one, two = prompts
    template = pipeline.answering.template
    assert one[0] == two[0] == template.system()
    assert isinstance(one[0], System)
    assert [segment.ids for segment in two[1:-1]] == [template.chunk(cited.text).ids for cited in second.citations]
    assert two[-1] == template.turns([(FIRST, first.text)], SECOND)
    assert isinstance(two[-1], Text)


def test_a_question_reads_the_last_messages_alone(
    pipeline: RagPipeline, prompts: list[list[Segment]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the conversation is, and none of its reports."""
    conversations = pipeline.library.catalog.conversations
    conversation = pipeline.conversation()
    said = [conversation.ask(one).text for one in (FIRST, "When was it lit?", SECOND)]

    def read(*_: object) -> None:
        raise AssertionError("all messages are read")

    monkeypatch.setattr(type(conversations), "messages", read)
    monkeypatch.setattr("app.answering.conversation.RECENT", 3)  # the first is an answer to what is not read
    conversation.ask("Who kept it?")
    assert prompts[-1][-1] == pipeline.answering.template.turns([(SECOND, said[-1])], "Who kept it?")
    conversation.again().close()
    assert prompts[-1][-1] == prompts[-2][-1], "the same question, behind what stood before it"


def test_a_follow_up_finds_what_the_first_question_was_about(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    conversation.ask(FIRST)
    report = conversation.ask(SECOND).report
    assert {"condense", "retrieve"} <= set(report.seconds)
    cited = [one["source"] for one in conversation.messages[-1].citations]
    assert sum(source.endswith("lighthouse.md") for source in cited) >= 3


def test_the_documents_of_the_last_turn_lead(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    last = conversation.ask("What do meerkats eat?").citations[-1].title
    follow_up = conversation.ask("And what is eaten at the bakery and in the lighthouse?")
    titles = list(dict.fromkeys(one.title for one in follow_up.citations))
    before = list(dict.fromkeys(one["document_id"] for one in conversation.messages[1].citations))
    expected = [one for one in before if one in {cited.document_id for cited in follow_up.citations}]
    assert list(dict.fromkeys(one.document_id for one in follow_up.citations))[: len(expected)] == expected
    assert last in titles


def test_the_last_question_is_answered_again_from_the_same_passages(pipeline: RagPipeline) -> None:
    """In the order in which its own answer had them: what is compared is the same prompt."""
    conversation = pipeline.conversation()
    conversation.ask("What do meerkats eat?")
    answer = conversation.ask("And what is eaten at the bakery and in the lighthouse?")
    with conversation.again(linker="full") as stream:
        assert [one.chunk_id for one in stream.answer.citations] == [one.chunk_id for one in answer.citations]


def test_what_takes_a_place_does_so_when_it_can_be_stored(
    pipeline: RagPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = pipeline.conversation()
    for question in (FIRST, SECOND):
        conversation.ask(question)

    def busy(*_: object, **__: object) -> None:
        raise CatalogError("busy")

    with monkeypatch.context() as patched:
        patched.setattr(type(pipeline.library.catalog.conversations), "add", busy)
        conversation.ask("Edited?", instead_of=conversation.messages[0].id)
        conversation.ask("And then?")
    conversation.save()
    assert [one.content for one in conversation.messages if one.role == "user"] == ["Edited?", "And then?"]


@pytest.mark.slow
def test_another_program_goes_on(sampled: Settings, pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    first = conversation.ask(FIRST)
    with RagPipeline(sampled) as other:
        again = other.conversation(conversation.id)
        assert again.collection == conversation.collection
        again.ask(SECOND)
    assert [message.content for message in conversation.messages][:3] == [FIRST, first.text, SECOND]
    assert len(conversation.messages) == 4


def test_an_answer_that_was_stopped_is_stored_as_far_as_it_came(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    with conversation.stream(FIRST, max_tokens=1000) as stream:
        said = next(stream) + next(stream)
    assert [message.content for message in conversation.messages] == [FIRST, said]


def test_one_that_was_stopped_before_its_first_word_is_not(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    conversation.stream(FIRST).close()
    assert (conversation.id, conversation.messages) == (None, [])


def test_async_turns_are_stored_too(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()

    async def ask() -> None:
        await conversation.aask(FIRST)
        async with await conversation.astream(SECOND) as stream:
            async for _ in stream:
                pass

    asyncio.run(ask())
    assert [message.content for message in conversation.messages][::2] == [FIRST, SECOND]


def test_a_question_that_is_refused_leaves_nothing(pipeline: RagPipeline) -> None:
    conversation = pipeline.conversation()
    conversation.ask(FIRST)
    with pytest.raises(TypeError, match="its own history"):
        conversation.ask(SECOND, history=[])
    assert len(conversation.messages) == 2


def test_an_unknown_conversation_is_told(pipeline: RagPipeline) -> None:
    with pytest.raises(CatalogError, match="no conversation 'nope'"):
        pipeline.conversation("nope")


def test_turns_are_questions_with_answers(pipeline: RagPipeline) -> None:
    catalog = pipeline.library.catalog
    conversation_id = catalog.conversations.create(catalog.collections.get("default")).id
    said = [("user", "a"), ("user", "b"), ("assistant", "B"), ("assistant", "?"), ("user", "c"), ("assistant", " ")]
    messages = catalog.conversations.add(conversation_id, [NewMessage(role, text) for role, text in said])  # type: ignore[arg-type]  # roles are right
    assert turns(messages) == [("b", "B")]
