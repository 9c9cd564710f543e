from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.answering.pipeline import RagPipeline
from app.errors import CatalogError
from app.library import Library
from app.library.fusion import COLLECTION, QUESTIONS, LearntFusion, learnt
from app.library.indexes import reindex
from app.library.learning import MOST_CHUNKS, learn_if_due, learnt_from_texts
from app.models import Models
from tests.app.library.shelves import make_collection, put, put_sentences, reopened
from tests.withholding import by_meaning, by_words

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_embedder")]
KEEPER = """
import sys
from pathlib import Path
from app.library.catalog import open_catalog
from app.settings import Settings
with open_catalog(Settings(data_dir=Path(sys.argv[1]))) as catalog:
    value = {"vector_share": 0.9, "fusion": "linear", "by": "questions", "chunks": 9}
    catalog.collections.set_retrieval(catalog.collections.get("default"), value)
"""


def kept(library: Library) -> LearntFusion | None:
    return learnt(library.catalog.collections.get("default"))


def shares(library: Library) -> LearntFusion:
    found = kept(library)
    assert found is not None
    return found


def test_a_collection_learns_from_its_own_texts(library: Library, models: Models) -> None:
    put_sentences(library, models, "/books/units.txt", by_words())
    learn_if_due(library, models, library.catalog.collections.get("default"))
    found = shares(library)
    assert (found.by, found.chunks, found.figures["sampled"]) == (COLLECTION, 24, 24)
    assert found.vector_share < 0.3
    assert library.catalog.collections.get("default").retrieval == found.as_json()


def test_where_words_are_useless_it_says_so(library: Library, models: Models) -> None:
    put_sentences(library, models, "/books/things.txt", by_meaning())
    learn_if_due(library, models, library.catalog.collections.get("default"))
    assert shares(library).vector_share == pytest.approx(2 / 3)


def test_few_chunks_leave_it_at_half_until_there_are_more(library: Library, models: Models) -> None:
    put_sentences(library, models, "/books/few.txt", by_words(12))
    learn_if_due(library, models, library.catalog.collections.get("default"))
    assert (shares(library).vector_share, shares(library).chunks) == (0.5, 12)
    put_sentences(library, models, "/books/more.txt", by_words(23)[12:])
    learn_if_due(library, models, library.catalog.collections.get("default"))
    assert shares(library).chunks == 12, "not for a few chunks more"
    put_sentences(library, models, "/books/last.txt", by_words(24)[23:])
    learn_if_due(library, models, library.catalog.collections.get("default"))
    assert shares(library).chunks == 24
    assert shares(library).vector_share < 0.3


def test_what_another_collection_loses_is_no_change_of_this_one(library: Library, models: Models) -> None:
    """Retirements are numbered over all collections."""
    put_sentences(library, models, "/books/units.txt", by_words())
    learn_if_due(library, models, library.catalog.collections.get("default"))
    before = shares(library)
    other = make_collection(library, "other")
    for edition in range(30):
        put(library, models, other, "/books/rye.txt", [f"edition {edition}", "the end"])
    put_sentences(library, models, "/books/one.txt", [["A text that replaces another one."]])
    put_sentences(library, models, "/books/one.txt", [["Another text that has replaced it."]])
    collection = library.collection()
    assert library.catalog.source(collection).position().retired > 2 * before.chunks
    assert library.catalog.source(collection).lost(0) == 1
    learn_if_due(library, models, library.catalog.collections.get("default"))
    assert kept(library) == before


def test_a_sample_that_tells_less_replaces_nothing(library: Library, models: Models) -> None:
    """As where the chunks of most documents have no sentences: `ragcache tune` has embedded them for it, once."""
    put_sentences(library, models, "/books/units.txt", by_words(42))
    learn_if_due(library, models, library.catalog.collections.get("default"))
    before = shares(library)
    put_sentences(library, models, "/books/more.txt", by_words(84)[42:])
    with library.catalog.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM sentences WHERE chunk_id > 20")
    learn_if_due(library, models, library.catalog.collections.get("default"))
    after = shares(library)
    assert (after.vector_share, after.figures) == (before.vector_share, before.figures)
    assert after.figures["sampled"] == 42
    assert after.chunks == 84, "and no sample is taken until as many are new again"
    learn_if_due(library, models, library.catalog.collections.get("default"), anew=True)
    assert shares(library).figures["sampled"] == 20


def test_what_questions_have_told_stays(library: Library, models: Models) -> None:
    put_sentences(library, models, "/books/units.txt", by_words())
    told = LearntFusion(0.8, "rank", QUESTIONS, 1)
    library.catalog.collections.set_retrieval(library.collection(), told.as_json())
    learn_if_due(library, models, library.catalog.collections.get("default"), anew=True)
    assert kept(library) == told


def test_the_same_chunks_teach_the_same(library: Library, models: Models) -> None:
    put_sentences(library, models, "/books/units.txt", by_words(MOST_CHUNKS + 40))
    once, again = (learnt_from_texts(library, models, library.collection()) for _ in range(2))
    assert once == again
    assert once[0].chunks == MOST_CHUNKS, "of many a sample is enough"


def test_an_empty_collection_learns_nothing(library: Library, models: Models) -> None:
    library.collection_or_new()
    learn_if_due(library, models, library.catalog.collections.get("default"))
    assert kept(library) is None


class BrokenCatalogError(CatalogError):
    pass


@pytest.mark.parametrize("error", [BrokenCatalogError, CatalogError, ValueError, KeyError, MemoryError, OSError])
def test_what_goes_wrong_is_only_told(
    library: Library,
    models: Models,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Callable[[str], Exception],
) -> None:
    put_sentences(library, models, "/books/few.txt", by_words(2))

    def fail(*_: object) -> None:
        raise error("no vectors today")

    monkeypatch.setattr("app.library.learning.balance", fail)
    with caplog.at_level(logging.WARNING):
        learn_if_due(library, models, library.catalog.collections.get("default"))
    assert "could not be learnt" in caplog.text
    assert "no vectors today" in caplog.text
    assert kept(library) is None


def test_nothing_is_embedded_for_it_unless_it_is_asked_for(library: Library, models: Models) -> None:
    put_sentences(library, models, "/books/units.txt", by_words())
    embedded = models.embedder
    collection = library.collection()
    ids = library.catalog.source(collection).live_ids({})
    whole = learnt_from_texts(library, models, collection)
    models.embedder = None
    del models.sentences
    assert learnt_from_texts(library, models, collection) == whole
    models.embedder = embedded
    with library.catalog.database.writing() as connection:  # as a collection of before has none
        connection.exec_driver_sql(f"DELETE FROM sentences WHERE chunk_id > {ids[1]}")
    assert learnt_from_texts(library, models, collection)[0].chunks == 2
    found, _ = learnt_from_texts(library, models, collection, embed=True)
    assert found.chunks == 24
    assert found.meaning == pytest.approx(whole[0].meaning, abs=0.1)


def test_a_reindexing_forgets_and_learns_anew(library: Library, models: Models) -> None:
    made = make_collection(library, dimension=models.embedder.dimension)
    collections = library.catalog.collections
    collections.reembed(made, models.settings.embedder, models.embedder_fingerprint, models.embedder.dimension, [])
    put_sentences(library, models, "/books/units.txt", by_words())
    with library.catalog.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM sentences")
        connection.exec_driver_sql("UPDATE collections SET embedder_fingerprint = 'another'")
    told = LearntFusion(0.9, "rank", QUESTIONS, 24)
    collections.set_retrieval(collections.get("default"), told.as_json())
    list(reindex(library, models, "default"))
    found = shares(library)
    assert (found.by, found.figures["sampled"]) == (COLLECTION, 24), "another embedder has other vectors"
    assert found.vector_share < 0.3


def test_sentences_that_a_reindexing_adds_are_learnt_from(library: Library, models: Models) -> None:
    put_sentences(library, models, "/books/units.txt", by_words())
    with library.catalog.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM sentences")
    learn_if_due(library, models, library.catalog.collections.get("default"))
    assert (shares(library).vector_share, shares(library).figures["sampled"]) == (0.5, 0)
    list(reindex(library, models, "default"))
    assert shares(library).figures["sampled"] == 24
    assert shares(library).vector_share < 0.3


def test_a_program_that_runs_finds_by_what_another_has_learnt(library: Library, models: Models) -> None:
    put_sentences(library, models, "/books/units.txt", by_words(9))
    pipeline = RagPipeline(over=(library, models))
    question = "What is done with the regulator of unit 7919?"
    before = pipeline.retrieve(question)
    folder, root = str(library.settings.data_dir), Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", KEEPER, folder], cwd=root, check=True, timeout=100)
    after = pipeline.retrieve(question)
    assert after[0].score != pytest.approx(before[0].score, abs=0.01), "its row is read at each question"
    fixed = reopened(library, models, vector_share=0.5)
    fixed[1].embedder = models.embedder
    again = RagPipeline(over=fixed).retrieve(question)
    assert [one.score for one in again] == pytest.approx([one.score for one in before]), "settings win"
