from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from app.errors import CatalogError, MaintenanceError
from app.library import Library
from app.library.catalog import open_catalog
from app.library.indexes import LOG, VectorLog, reindex
from app.models import Models
from tests.app.library.shelves import DIMENSION, fill

pytestmark = pytest.mark.usefixtures("one_embedder")
BOOKS = {f"/books/{number}.txt": [f"The bell of ship {number}.", f"Its crew of {number}."] for number in range(3)}


def check(library: Library, models: Models) -> None:
    """A question finds what it should, and what it finds has the vector of its text below its headings."""
    collection = library.collection()
    hits = library.searcher(collection).search("Which ship had the bell 1?", 1)
    found = library.catalog.chunks.found([hits[0].id])[0]
    assert found.chunk.text == "The bell of ship 1."
    for ids, texts, vectors in library.catalog.source(collection).added(0):
        assert len(ids) == 6
        chunks = [found.chunk for found in library.catalog.chunks.found(ids)]
        assert [chunk.text for chunk in chunks] == [text.split("\n", 1)[1] for text in texts]
        assert all(chunk.heading for chunk in chunks)
        expected = [f"{' > '.join(chunk.heading)}\n{chunk.text}" for chunk in chunks]
        np.testing.assert_allclose(vectors, models.embedder.embed(expected), atol=1e-5)
        there = library.catalog.source(collection).sentences(ids)  # a run that was stopped has not added them yet
        assert there in ([None] * len(ids), models.sentences.packed([chunk.text for chunk in chunks]))


def test_another_embedder_embeds_everything_again(library: Library, models: Models) -> None:
    old = fill(library, models, books=BOOKS)
    with pytest.raises(CatalogError, match="ragcache reindex -c default"):
        library.collection()
    library.index_folder(old).mkdir(parents=True)
    *_, last = reindex(library, models, "default")
    assert (last.chunks, last.embedded, last.done) == (6, 6, True)
    assert last.collection.dimension == models.embedder.dimension != DIMENSION
    assert not library.index_folder(old).exists()
    check(library, models)
    (again,) = reindex(library, models, "default")
    assert (again.embedded, again.done, again.collection.uid) == (0, True, last.collection.uid)
    check(library, models)


def test_the_same_embedder_builds_the_indexes_anew(library: Library, models: Models) -> None:
    fill(library, models, books=BOOKS)
    list(reindex(library, models, "default"))
    folder = library.index_folder(library.collection())
    for path in folder.glob("vectors.*.faiss"):
        path.write_bytes(b"nothing")
    list(reindex(library, models, "default"))
    assert all(path.stat().st_size > 100 for path in folder.glob("vectors.*.faiss"))
    check(library, models)


@pytest.mark.slow
@pytest.mark.parametrize("stop", range(4))
def test_a_run_that_was_stopped_goes_on(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    old = fill(library, models, books=BOOKS)
    monkeypatch.setattr("app.library.indexes._BATCH", 2)
    running = reindex(library, models, "default")
    seen = [report.embedded for report in itertools.islice(running, stop + 1)]
    running.close()
    if stop % 2:  # by an older version
        for path in library.settings.data_dir.glob(f"index/*/{LOG}*"):
            path.rename(path.with_name(LOG + path.name.rpartition("-")[2]))
    assert seen == [0, 2, 4, 6][: stop + 1]
    assert library.catalog.collections.get("default") == old, "nothing has happened yet"
    reports = list(reindex(library, models, "default"))
    assert reports[0].embedded == seen[-1], "it goes on from there"
    assert list(library.settings.data_dir.glob(f"index/*/{LOG}*")) == []
    check(library, models)


@pytest.mark.slow
def test_one_stopped_behind_the_change_leaves_nothing(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fill(library, models, books=BOOKS)
    running = reindex(library, models, "default")
    for report in running:
        if report.collection.uid != old.uid:
            break
    running.close()
    check(library, models)
    list(reindex(library, models, "default"))
    assert not library.index_folder(old).exists()


def test_sentences_are_reported_as_they_come(library: Library, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take as long as the chunks do, or longer. A run that was stopped amid them goes on."""
    fill(library, models, books=BOOKS)
    monkeypatch.setattr("app.library.indexes._BATCH", 2)
    running = reindex(library, models, "default")
    seen = [(report.embedded, report.sentences) for report in itertools.islice(running, 6)]
    running.close()
    assert seen[-3:] == [(6, 0), (6, 0), (6, 2)], "all chunks, then the change, then their sentences"
    rest = list(reindex(library, models, "default"))
    assert [(report.sentences, report.done) for report in rest] == [(2, False), (4, False), (4, True)]
    check(library, models)


def test_chunks_that_are_gone_meanwhile_are_left_out(library: Library, models: Models) -> None:
    collection = fill(library, models, books=BOOKS)
    running = reindex(library, models, "default")
    next(running), next(running)
    running.close()
    first = library.catalog.documents.all(collection)[0]
    library.catalog.documents.delete(collection, [first.id])
    *_, last = reindex(library, models, "default")
    assert (last.chunks, last.embedded) == (4, 4)


def test_the_files_of_another_collection_stay(library: Library, models: Models) -> None:
    """Another process may be embedding it at this moment."""
    fill(library, models, books=BOOKS)
    other = fill(library, models, "other", books=BOOKS)
    theirs = library.index_folder(other) / f"{LOG}abc.vectors"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"half")
    list(reindex(library, models, "default"))
    assert theirs.exists()


def test_what_another_database_has_not_finished_stays(library: Library, models: Models, tmp_path: Path) -> None:
    """Its indexes lie in the same data folder. What this one has left there goes."""
    url = SecretStr(f"sqlite:///{tmp_path}/other.sqlite")
    settings = library.settings.model_copy(update={"database_url": url})
    with open_catalog(settings) as catalog:
        other = Library(settings, catalog, models)
        theirs = fill(other, models, books=BOOKS)
        running = reindex(other, models, "default")
        next(running), next(running)
        running.close()
        old = fill(library, models, books=BOOKS)
        for report in reindex(library, models, "default"):
            if report.collection.uid != old.uid:
                break  # killed: its file is still there
        list(reindex(library, models, "default"))
        assert [path.name for path in (library.settings.data_dir / "index").iterdir() if path.name == old.uid] == []
        assert next(iter(reindex(other, models, "default"))).embedded == 6, "they go on"
        assert other.index_folder(theirs).exists()


def test_a_folder_that_cannot_be_written_is_told(library: Library, models: Models) -> None:
    collection = fill(library, models, books=BOOKS)
    (library.settings.data_dir / "index").write_text("a file where the folder should be")
    with pytest.raises(MaintenanceError, match=r"cannot keep the new embeddings in .* it goes on from here"):
        list(reindex(library, models, "default"))
    assert library.catalog.collections.get("default") == collection


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_a_log_that_is_torn_anywhere_keeps_what_is_whole(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    log = VectorLog(tmp_path_factory.mktemp("log") / "vectors", 3)
    rows: list[int] = []
    for size in sizes:
        ids = np.arange(len(rows) + 1, len(rows) + size + 1)
        log.append(ids, np.repeat(ids[:, None], 3, axis=1).astype(np.float32))
        rows += ids.tolist()
    record = log.path.stat().st_size // len(rows)
    cut = data.draw(st.integers(0, record * len(rows)), label="cut")
    log.path.write_bytes(log.path.read_bytes()[:cut])
    whole = rows[: cut // record]
    assert log.ids().tolist() == whole
    log.append(np.array([100]), np.zeros((1, 3), np.float32))
    assert log.ids().tolist() == [*whole, 100]
    flipped = bytearray(log.path.read_bytes())
    flipped[data.draw(st.integers(0, record - 1), label="flip")] ^= 1
    log.path.write_bytes(flipped)
    left = [*whole, 100][1:]
    assert log.ids().tolist() == left
    assert all((vectors == 0).all() or (vectors[:, 0] >= 1).any() for _, vectors in log.batches())


def test_a_log_gives_back_its_vectors(tmp_path: Path) -> None:
    log = VectorLog(tmp_path / "new" / "vectors", 4)
    assert log.ids().tolist() == []
    vectors = np.random.default_rng(0).standard_normal((5000, 4)).astype(np.float32)
    log.append(np.arange(5000), vectors)
    found = list(log.batches())
    assert len(found) > 1
    np.testing.assert_array_equal(np.concatenate([part for _, part in found]), vectors)
