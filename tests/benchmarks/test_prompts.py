from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from app.models.loading import TorchModel
from benchmarks.caches import capture, memory_cache, prefill_prompt
from benchmarks.corpus import sized_splitter
from benchmarks.data import Dataset, Question, read_dataset
from benchmarks.quality.prompts import Prompt, PromptBuilder
from ragcache.errors import ConfigError
from ragcache.store import open_store
from ragcache.store.codec import CODECS
from ragcache.types import Chunk, System, Text
from retriever import Vectors
from splitter import make_splitter
from splitter.base import ChunkLimits, Embed, Piece
from tests.benchmarks.conftest import letters


def builder(
    parts: TorchModel,
    *,
    top_k: int = 3,
    chunk_tokens: int = 12,
    room: int = 900,
    order: str = "best",
    splitter: str = "fixed",
    embed: Embed = letters,
) -> PromptBuilder:
    even = sized_splitter(parts.template, chunk_tokens)
    chosen = sized_splitter(parts.template, chunk_tokens, splitter, letters)
    return PromptBuilder(parts.template, embed, chosen, even, top_k, room, order)


def chunked(parts: TorchModel, text: str, pieces: Sequence[Piece]) -> tuple[Chunk, ...]:
    return tuple(parts.template.chunk(text[piece.start : piece.end]) for piece in pieces)


def texts(parts: TorchModel, prompt: Prompt) -> list[str]:
    return [parts.template.decode(chunk.ids).strip() for chunk in prompt.chunks]


def test_given_passages_stand_in_their_order(parts: TorchModel, given_file: Path) -> None:
    groups = list(builder(parts).groups(read_dataset(given_file)))
    assert len(groups) == 4
    (prompt,) = groups[0].prompts
    assert isinstance(prompt.segments[0], System)
    assert isinstance(prompt.segments[-1], Text)
    assert prompt.segments[1:-1] == prompt.chunks
    sentences = [
        f"{text}" for n in range(3) for text in ("Apples grow in the orchard.", f"They are ripe in month {n}.")
    ]
    assert texts(parts, prompt) == sentences
    assert [len(document) for document in groups[0].documents] == [2, 2, 2], "each passage is a document of its own"


@pytest.mark.slow
def test_passages_that_do_not_fit_are_dropped_from_the_end_and_counted(parts: TorchModel, given_file: Path) -> None:
    data = read_dataset(given_file)
    (whole,) = next(builder(parts).groups(data)).prompts
    room = sum(len(segment) for segment in whole.segments)
    assert builder(parts, room=room).dropped(data.questions[0]) == 0
    tight = builder(parts, room=room - 1)
    (prompt,) = next(tight.groups(data)).prompts
    assert prompt.chunks == whole.chunks[:4]
    assert tight.dropped(data.questions[0]) == 1
    with pytest.raises(ConfigError, match="not one of its passages fits"):
        next(builder(parts, room=10).groups(data))


def test_corpora_are_searched_best_first(parts: TorchModel, corpora_folder: Path) -> None:
    groups = list(builder(parts, chunk_tokens=30).groups(read_dataset(corpora_folder)))
    assert len(groups) == 2, "one per corpus, so that its KV is computed once"
    for group in groups:
        (document,) = group.documents
        for prompt, fruit in zip(group.prompts, ("apples", "pears"), strict=True):
            assert len(prompt.chunks) == 3
            assert set(prompt.chunks) <= set(document)
            question = letters([f"How many kinds of {fruit}?"])[0]
            scores = letters(texts(parts, prompt)) @ question
            assert list(scores) == sorted(scores, reverse=True)
            rest = [parts.template.decode(chunk.ids).strip() for chunk in document if chunk not in prompt.chunks]
            assert scores.min() >= (letters(rest) @ question).max() - 1e-6


@pytest.mark.slow
def test_document_order_keeps_the_same_chunks_as_they_stand(parts: TorchModel, corpora_folder: Path) -> None:
    data = read_dataset(corpora_folder)
    best = next(builder(parts, chunk_tokens=30).groups(data))
    sorted_ = next(builder(parts, chunk_tokens=30, order="document").groups(data))
    (document,) = best.documents
    for one, other in zip(best.prompts, sorted_.prompts, strict=True):
        assert set(one.chunks) == set(other.chunks)
        assert list(other.chunks) == sorted(other.chunks, key=document.index)
    assert [one.chunks for one in best.prompts] != [other.chunks for other in sorted_.prompts]


def test_corpora_without_a_chosen_question_are_left_alone(parts: TorchModel, corpora_folder: Path) -> None:
    data = read_dataset(corpora_folder)
    only = Dataset(data.questions[:1], data.digest, data.corpora)
    assert len(list(builder(parts).groups(only))) == 1


MARKED = "# Fruit\n\nApples are ripe. Pears are not.\n\n# Stone\n\nGranite lasts. Nobody eats it at all.\n"


def test_a_corpus_is_cut_and_embedded_as_a_document_that_is_ingested(parts: TorchModel) -> None:
    """With its headings, which no prompt repeats."""
    embedded: list[str] = []

    def recorded(given: Sequence[str]) -> Vectors:
        embedded.extend(given)
        return letters(given)

    data = Dataset((Question("one", "Which fruit?", corpus="marked"),), "", {"marked": MARKED})
    (group,) = builder(parts, chunk_tokens=12, splitter="auto", embed=recorded).groups(data)
    pieces = make_splitter("auto", parts.template.tokens, letters, ChunkLimits(6, 12)).split(MARKED, "markdown")
    assert [piece.embedded(MARKED) for piece in pieces] == [text for text in embedded if text != "Which fruit?"]
    assert any(piece.heading for piece in pieces)
    cut = chunked(parts, MARKED, pieces)
    assert group.documents == (cut,)
    assert cut != chunked(parts, MARKED, builder(parts).even.split(MARKED))


def test_given_passages_are_cut_where_they_are_longer_than_a_chunk_and_whole_elsewhere(parts: TorchModel) -> None:
    short, long = (
        "Apples are ripe. Granite lasts.",
        "Apples are ripe. Pears are ripe too. Granite lasts. So does slate.",
    )
    question = Question("one", "Which?", contexts=(short, long))
    tokens = parts.template.tokens.count(short)
    semantic = builder(parts, chunk_tokens=tokens, splitter="semantic")
    ((first, second),) = (group.documents for group in semantic.groups(Dataset((question,), "")))
    assert first == (parts.template.chunk(short),)
    pieces = semantic.splitter.split(long)
    assert second == chunked(parts, long, pieces)
    assert pieces != semantic.even.split(long)
    assert semantic.cuts(question)
    assert not semantic.cuts(Question("two", "Which?", contexts=(short,)))


@pytest.mark.slow
@pytest.mark.parametrize(("context", "computed"), [("alone", [1, 4]), ("document", [0, 1, 2, 3, 4])])
def test_only_what_is_needed_is_computed_and_only_what_is_asked_for_is_kept(
    parts: TorchModel, context: str, computed: list[int]
) -> None:
    document = [parts.template.chunk(f"Chunk number {n}.") for n in range(7)]
    needed = [document[4], document[1]]
    cache = memory_cache(parts, context)
    variants = list(capture(cache, parts.template.system(), [document], needed))
    assert [variant.key.chunk for variant in variants] == [document[n].hash for n in computed]
    segments = (parts.template.system(), *document, parts.template.question("Which?"))
    report = prefill_prompt(cache, segments, "naive").report
    assert [n for n, chunk in enumerate(report.chunks) if chunk.tier == "ram"] == [1, 4]


def test_the_context_of_a_capture_is_that_of_an_ingest(parts: TorchModel) -> None:
    document = [parts.template.chunk(f"Chunk number {n}.") for n in range(6)]
    captured = capture(memory_cache(parts, "document"), parts.template.system(), [document], document)
    ingested = memory_cache(parts, "document").ingest(parts.template.system(), document)
    assert [variant.key for variant in captured] == [variant.key for variant in ingested]


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_capture_keeps_has_lost_what_a_file_would(parts: TorchModel, tmp_path: Path, codec: str) -> None:
    """And what is computed behind it is computed over what has not, as at an ingest."""
    document, system = [parts.template.chunk(f"Chunk number {n}.") for n in range(6)], parts.template.system()
    cache, files = memory_cache(parts, "document"), open_store(tmp_path, ram_bytes=0, codec=codec)
    for variant in capture(cache, system, [document], document, codec=codec):
        assert variant.lossless
        files.put(variant)
        kept, read = cache.store.get(variant.key), files.get(variant.key)
        assert kept is not None
        assert read is not None
        assert torch.equal(kept.variant.k, read.variant.k)
        assert torch.equal(kept.variant.v, read.variant.v)
        assert kept.variant.lineage == read.variant.lineage
