"""Context caches: their KV is there when they are made, is their owner's alone, and goes with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app import RagPipeline, Settings
from app.cachecare import prune
from app.chat.contexts import ContextRequest, Contexts, Sweeper
from app.errors import NotFound
from ragcache.errors import ConfigError, PromptError, StoreError
from ragcache.types import Chunk, Segment, System, Text, Variant, VariantInfo, VariantKey
from splitter import SplitterError
from tests.app.filling import put
from tests.waiting import wait_until

TEXTS = ("The tower was built in 1846, of granite from the quarry at Holm.", "Three keepers lived there in turns.")
OTHER = "Rye bread takes three days, and the starter is called Berta."
ANN, BEN = ("ann", "key-ann"), ("ben", "key-ben")


@pytest.fixture
def pipeline(tiny_folder: Path, tmp_path: Path) -> Iterator[RagPipeline]:
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    with RagPipeline(settings) as pipeline:
        yield pipeline
        pipeline.settle()
        pipeline.models.store.check_integrity()


@pytest.fixture
def contexts(pipeline: RagPipeline) -> Contexts:
    return pipeline.contexts


def make(contexts: Contexts, *texts: str, who: tuple[str, str] = ("", ""), **options: object) -> str:
    return contexts.create(ContextRequest(texts, **options), *who).id  # type: ignore[arg-type]  # of a request


def stored(pipeline: RagPipeline, text: str, border: str = "", system: System | None = None) -> list[VariantInfo]:
    """The KV of a text behind a System segment."""
    template = pipeline.models.template
    behind = system or template.system()
    key = VariantKey(
        pipeline.models.cache.engine.spec.fingerprint, behind.hash, (), template.chunk(text).hash, border=border
    )
    return pipeline.models.store.variants(key.family)


def answered(pipeline: RagPipeline, segments: list[Segment], linker: str | None = None) -> tuple[list[int], object]:
    stream = pipeline.models.cache.generate(segments, max_tokens=8, linker=linker)
    tokens = list(stream)
    pipeline.settle()
    return tokens, stream.report


def test_its_kv_is_there_when_it_is_made(pipeline: RagPipeline, contexts: Contexts) -> None:
    made = make(contexts, *TEXTS)
    first, second = (stored(pipeline, text) for text in TEXTS)
    template = pipeline.models.template
    assert [info.key.context for info in first] == [()]
    assert [info.key.context for info in second] == [(template.chunk(TEXTS[0]).hash,)]
    found, lengths = contexts.get(made)
    assert lengths == [len(template.chunk(text)) for text in TEXTS]
    assert found.nbytes == sum(lengths) * pipeline.models.cache.engine.spec.token_bytes
    assert contexts.segments(made) == [template.chunk(text) for text in TEXTS]


def test_a_prompt_of_it_computes_nothing_of_it(pipeline: RagPipeline, contexts: Contexts) -> None:
    made = make(contexts, *TEXTS)
    template = pipeline.models.template
    segments = [template.system(), *contexts.segments(made), template.question("When?")]
    tokens, report = answered(pipeline, segments)
    assert all(chunk.exact and not chunk.computed for chunk in report.chunks)  # type: ignore[attr-defined]
    assert tokens == answered(pipeline, segments, "full")[0]


def test_behind_another_system_prompt_it_is_exact_from_the_second_use_on(
    pipeline: RagPipeline, contexts: Contexts
) -> None:
    made = make(contexts, TEXTS[0], who=ANN)
    template = pipeline.models.template
    system = System((*template.system().ids[:40], *template.system().ids[45:]), ANN[1])
    segments = [system, *contexts.segments(made, "ann"), Text(template.question("When?").ids, ANN[1])]
    (first,) = answered(pipeline, segments)[1].chunks  # type: ignore[attr-defined]
    (second,) = answered(pipeline, segments)[1].chunks  # type: ignore[attr-defined]
    assert (first.tier != "computed", first.system, first.exact) == (True, "other", False)
    assert (second.tier != "computed", second.system, second.exact) == (True, "", True)
    contexts.expire(made, "ann")
    assert stored(pipeline, TEXTS[0], ANN[1]) == stored(pipeline, TEXTS[0], ANN[1], system) == []


def test_what_two_owners_say_alike_shares_nothing(pipeline: RagPipeline, contexts: Contexts) -> None:
    ann = make(contexts, *TEXTS, who=ANN)
    assert [stored(pipeline, text, BEN[1]) for text in TEXTS] == [[], []]
    assert stored(pipeline, TEXTS[0]) == []
    ben = make(contexts, *TEXTS, who=BEN)
    keys = [{info.key.digest for info in stored(pipeline, TEXTS[1], border)} for _, border in (ANN, BEN)]
    assert keys[0].isdisjoint(keys[1])
    contexts.expire(ann, "ann")
    assert [stored(pipeline, text, ANN[1]) for text in TEXTS] == [[], []]
    assert [len(stored(pipeline, text, BEN[1])) for text in TEXTS] == [1, 1]
    assert [chunk.border for chunk in contexts.segments(ben, "ben")] == ["key-ben"] * 2


def test_one_of_another_owner_or_expired_is_as_one_that_never_was(contexts: Contexts) -> None:
    ann, never = make(contexts, TEXTS[0], who=ANN), "cc-" + "0" * 32
    gone = make(contexts, TEXTS[0])
    contexts.expire(gone)
    told = set()
    for cache_id in (ann, never, gone):
        for ask in (contexts.get, contexts.segments, contexts.expire):
            with pytest.raises(NotFound) as refused:
                ask(cache_id)
            told.add(str(refused.value).replace(cache_id, "ID"))
    assert len(told) == 1
    assert contexts.get(ann, "ann")[0].owner == "ann"
    assert contexts.all() == []


def test_what_somebody_else_still_has_stays(pipeline: RagPipeline, contexts: Contexts) -> None:
    one, two = make(contexts, TEXTS[0], OTHER), make(contexts, TEXTS[0])
    put(pipeline, {"/docs/bread.md": OTHER}, "bread", kv=True)
    contexts.expire(one)
    assert stored(pipeline, TEXTS[0])
    assert stored(pipeline, OTHER)
    contexts.expire(two)
    assert not stored(pipeline, TEXTS[0])
    assert [info for info in stored(pipeline, OTHER) if info.key.context] == []  # what had seen it went too
    assert stored(pipeline, OTHER)


def test_a_time_to_live_ends(pipeline: RagPipeline, contexts: Contexts) -> None:
    brief, lasting = make(contexts, TEXTS[0], ttl=3600), make(contexts, TEXTS[1], ttl=7200)
    rows = pipeline.library.catalog.context_caches
    with suppress(NotFound):  # it is not there any more
        rows.prolong(brief, "", datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(NotFound):
        contexts.segments(brief)
    assert [one.id for one in contexts.all()] == [lasting]
    assert stored(pipeline, TEXTS[0])
    assert contexts.sweep() == 1
    assert (stored(pipeline, TEXTS[0]), contexts.sweep()) == ([], 0)
    assert stored(pipeline, TEXTS[1])


def test_a_sweeper_ends_what_nobody_asks_for(
    pipeline: RagPipeline, contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.contexts.SWEEP_S", 0.01)
    sweeper = Sweeper(contexts)
    make(contexts, TEXTS[0], ttl=0.001)
    sweeper.start()
    wait_until(lambda: not stored(pipeline, TEXTS[0]), 30.0)
    sweeper.close()
    assert pipeline.library.catalog.context_caches.chunks_within(None) == {}


def test_one_owner_has_so_many_and_so_much(tiny_folder: Path, tmp_path: Path) -> None:
    settings = Settings(
        model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", context_caches=2,
        context_bytes=16_000,
    )  # fmt: skip
    with RagPipeline(settings) as pipeline:
        contexts = pipeline.contexts
        first = make(contexts, TEXTS[0], who=ANN)
        make(contexts, TEXTS[1], who=ANN)
        with pytest.raises(ConfigError, match="2 may be there"):
            make(contexts, OTHER, who=ANN)
        with pytest.raises(ConfigError, match="16,000 may be there"):
            make(contexts, *[OTHER] * 20, who=BEN)
        assert (stored(pipeline, OTHER, ANN[1]), stored(pipeline, OTHER, BEN[1]), contexts.all("ben")) == ([], [], [])
        contexts.expire(first, "ann")
        assert make(contexts, OTHER, who=ANN)


def test_a_text_is_split_by_a_splitter(pipeline: RagPipeline, contexts: Contexts) -> None:
    text = "\n\n".join((*TEXTS, OTHER) * 8)
    made = make(contexts, text, split="fixed")
    splitter = pipeline.models.splitter("fixed", pipeline.settings.chunk_limits)
    pieces = [text[piece.start : piece.end] for piece in splitter.split(text)]
    assert len(pieces) > 1
    assert contexts.segments(made) == [pipeline.models.template.chunk(piece) for piece in pieces]
    with pytest.raises(SplitterError, match="unknown splitter"):
        make(contexts, text, split="nope")


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({}, "texts or of tokens"),
        ({"texts": ["a"], "tokens": [[1]]}, "texts or of tokens"),
        ({"tokens": [[1]], "split": "fixed"}, "chunks already"),
        ({"texts": ["a", " "]}, "empty passage"),
        ({"texts": ["a\ud800"]}, "no valid text"),
        ({"texts": ["  "], "split": "fixed"}, "0 chunks"),
        ({"texts": ["word " * 3000]}, "context has 2048"),
        ({"tokens": [[1], []]}, "no tokens"),
        ({"tokens": [[1, 10**6]]}, "vocabulary"),
        ({"tokens": [[-1]]}, "token -1"),
        ({"tokens": [[True]]}, "bool"),
        ({"tokens": [[1]] * 1025}, "1,025 chunks"),
        ({"texts": ["a"], "ttl": 0}, "ttl=0"),
        ({"texts": ["a"], "ttl": float("nan")}, "ttl=nan"),
        ({"texts": ["a"], "ttl": float("inf")}, "ttl=inf"),
        ({"texts": ["a"], "ttl": 1e10}, "ttl=1"),
    ],
)
def test_what_no_prompt_can_hold_leaves_nothing(contexts: Contexts, request_: dict[str, object], why: str) -> None:
    with pytest.raises((PromptError, ConfigError), match=why):
        contexts.create(ContextRequest(**request_))  # type: ignore[arg-type]  # what is wrong with it is tested
    assert contexts.all() == []


def test_one_whose_kv_cannot_be_kept_is_not_made(
    pipeline: RagPipeline, contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, left = pipeline.models.store, [2]  # System and the first chunk
    put_ = store.put

    def full(variant: Variant, *, wanted: bool = False) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise StoreError("no space left")
        return put_(variant, wanted=wanted)

    monkeypatch.setattr(store, "put", full)
    with pytest.raises(StoreError, match="no space left"):
        make(contexts, *TEXTS)
    assert (contexts.all(), stored(pipeline, TEXTS[0])) == ([], [])


def test_pruning_leaves_it(pipeline: RagPipeline, contexts: Contexts) -> None:
    ann, own = make(contexts, *TEXTS, who=ANN), make(contexts, OTHER)
    orphan = make(contexts, "Nobody has this any more.")
    pipeline.library.catalog.context_caches.delete(orphan, None)  # as a process that is killed then
    pruned = prune(pipeline.library, pipeline.models)
    assert pruned.unreferenced.entries == 1
    assert (len(stored(pipeline, TEXTS[1], ANN[1])), len(stored(pipeline, OTHER))) == (1, 1)
    contexts.expire(ann, "ann")
    contexts.expire(own)


def test_without_kv_a_prompt_computes_it(tiny_folder: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", kv="off")
    with RagPipeline(settings) as pipeline:
        made = pipeline.generate_context_cache(TEXTS)
        template = pipeline.models.template
        segments = [template.system(), *pipeline.contexts.segments(made), template.question("When?")]
        assert {chunk.tier for chunk in answered(pipeline, segments)[1].chunks} == {"computed"}  # type: ignore[attr-defined]
        pipeline.expire_cache(made)
        assert pipeline.contexts.all() == []


def test_another_model_does_not_take_its_tokens(pipeline: RagPipeline, contexts: Contexts, tiny_folder: Path) -> None:
    made = pipeline.generate_context_cache([[5, 6, 7], [8]], ttl=60)
    assert contexts.segments(made) == [Chunk((5, 6, 7)), Chunk((8,))]
    changed = pipeline.settings.model_copy(update={"dtype": "float32"})
    if pipeline.models.cache.engine.spec.dtype.itemsize == 4:
        changed = pipeline.settings.model_copy(update={"dtype": "bfloat16"})
    with RagPipeline(changed) as other, pytest.raises(NotFound, match="another model"):
        other.contexts.segments(made)


def test_a_text_of_two_caches_that_end_at_once_goes(
    pipeline: RagPipeline, contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by another process, after this one has looked at what the other caches have."""
    first, second = (contexts.create(ContextRequest(texts=TEXTS[:1]), *ANN) for _ in range(2))
    elsewhere = Contexts(pipeline.library, pipeline.models)
    delete = contexts._rows.delete

    def late(cache_id: str, owner: str | None, *left: Any) -> None:
        monkeypatch.undo()
        elsewhere.expire(second.id, ANN[0])
        delete(cache_id, owner, *left)

    monkeypatch.setattr(contexts._rows, "delete", late)
    contexts.expire(first.id, ANN[0])
    assert stored(pipeline, TEXTS[0], ANN[1]) == []
