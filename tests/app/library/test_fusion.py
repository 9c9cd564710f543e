from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from app.library import Library
from app.library.catalog.records import Collection
from app.library.fusion import (
    COLLECTION,
    DEFAULT,
    QUESTIONS,
    SETTING,
    FusionInUse,
    LearntFusion,
    fusion_in_use,
    is_due,
    learnt,
    search_options,
)
from app.settings import Settings
from tests.app.library.shelves import make_collection

LEARNT = LearntFusion(0.3, "rank", COLLECTION, 40, 3, {"sampled": 30})


def having(library: Library, value: Any) -> Collection:
    made = library.catalog.collections.find("default") or make_collection(library)
    library.catalog.collections.set_retrieval(made, value)
    return library.catalog.collections.get("default")


@pytest.mark.parametrize(
    ("kept", "changes", "expected"),
    [
        (None, {}, FusionInUse(0.5, "linear", DEFAULT)),
        (LEARNT, {}, FusionInUse(0.3, "rank", COLLECTION)),
        (LEARNT, {"vector_share": 0.8}, FusionInUse(0.8, "rank", SETTING)),
        (LEARNT, {"vector_share": 0.0}, FusionInUse(0.0, "rank", SETTING)),
        (LEARNT, {"fusion": "linear"}, FusionInUse(0.3, "linear", COLLECTION)),
        (None, {"vector_share": 0.8, "fusion": "rank"}, FusionInUse(0.8, "rank", SETTING)),
    ],
)
def test_settings_before_what_was_learnt_before_the_default(
    library: Library, kept: LearntFusion | None, changes: dict[str, Any], expected: FusionInUse
) -> None:
    collection = having(library, kept and kept.as_json())
    settings = library.settings.model_copy(update=changes)
    assert fusion_in_use(settings, collection) == expected
    options = search_options(settings, collection, 0.4)
    assert (options.vector_share, options.fusion, options.mmr) == (expected.vector_share, expected.fusion, 0.4)


def test_other_options_are_those_of_the_settings(settings: Settings, library: Library) -> None:
    changed = settings.model_copy(update={"retrieval": "keyword", "mmr": 0.2, "rerank_depth": 7})
    options = search_options(changed, having(library, None))
    assert (options.mode, options.mmr, options.rerank_depth) == ("keyword", 0.2, 7)


def test_a_question_may_be_searched_for_otherwise(settings: Settings, library: Library) -> None:
    assert search_options(settings, having(library, None), mode="keyword").mode == "keyword"


def test_what_was_learnt_is_what_is_read(library: Library) -> None:
    assert learnt(having(library, LEARNT.as_json())) == LEARNT
    assert learnt(having(library, None)) is None


@pytest.mark.parametrize(
    "value",
    [
        {}, [], "x", 3, {"vector_share": 0.5}, LEARNT.as_json() | {"vector_share": 1.5},
        LEARNT.as_json() | {"vector_share": "high"}, LEARNT.as_json() | {"fusion": "neural"},
        LEARNT.as_json() | {"by": "magic"}, LEARNT.as_json() | {"chunks": "many"},
        LEARNT.as_json() | {"vector_share": float("nan")},
    ],
)  # fmt: skip
def test_what_cannot_be_read_counts_as_not_learnt(
    library: Library, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    collection = having(library, LEARNT.as_json())
    collection = type(collection)(**(vars(collection) | {"retrieval": value}))
    with caplog.at_level(logging.WARNING):
        assert fusion_in_use(library.settings, collection).by == DEFAULT
    assert "cannot be read" in caplog.text
    assert is_due(collection, 1, no_loss)
    assert is_due(collection, 1, no_loss, wrote=False, anew=True)
    assert not is_due(collection, 1, no_loss, wrote=False), "a newer version may have learnt it"
    assert is_due(having(library, None), 1, no_loss, wrote=False)


@pytest.mark.parametrize("value", [{"retired": 7}, {}])
def test_what_an_older_version_kept_is_read(library: Library, value: dict[str, Any]) -> None:
    older = {"vector_share": 0.3, "fusion": "rank", "by": COLLECTION, "chunks": 40, "sampled": "many"} | value
    found = learnt(having(library, older))
    assert found is not None
    assert (found.retired, found.sampled) == (value.get("retired"), None)
    assert found.as_json() == older


def no_loss(after: int) -> int:
    return 0


@pytest.mark.parametrize(
    ("kept", "live", "retired", "due", "anew"),
    [
        (None, 0, 9, False, False),
        (None, 1, 0, True, True),
        (LEARNT, 41, 3, False, True),
        (LEARNT, 79, 3, False, True),
        (LEARNT, 80, 3, True, True),
        (LEARNT, 20, 23, False, True),  # half are gone
        (LEARNT, 40, 42, False, True),
        (LEARNT, 40, 43, True, True),  # all are others
        (replace(LEARNT, retired=None), 40, 4000, False, True),  # what is not known is not taken for 0
        (replace(LEARNT, retired=None), 80, 0, True, True),
        (LearntFusion(0.3, "linear", QUESTIONS, 40), 4000, 0, False, False),
    ],
)
def test_it_is_learnt_once_and_again_when_as_many_chunks_are_new(
    library: Library, kept: LearntFusion | None, live: int, retired: int, due: bool, anew: bool
) -> None:
    def lost(after: int) -> int:
        return retired - after

    collection = having(library, kept and kept.as_json())
    assert is_due(collection, live, lost) is due
    assert is_due(collection, live, lost, anew=True) is anew


def test_an_embedding_anew_forgets_it(library: Library) -> None:
    for by in (COLLECTION, QUESTIONS):
        collection = having(library, LEARNT.as_json() | {"by": by})
        assert library.catalog.collections.reembed(collection, "e", "f" * 32, 4, []).retrieval is None
