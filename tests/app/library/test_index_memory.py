"""How many indexes stay in memory, and that none loses anything by going."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.ingestion import IngestProgress
from app.ingestion.ingest import Ingest
from app.library import Library
from app.library.catalog.records import Collection
from app.library.index_memory import LEAST_NBYTES
from app.models import Models
from retriever.derived import DerivedIndex
from retriever.keyword_index import KeywordIndex
from retriever.searcher import KEYWORD, SearchOptions
from retriever.vector_index import VectorIndex
from tests.app.library.shelves import fill, reopened

pytestmark = pytest.mark.usefixtures("one_embedder")
TWO = 5 * LEAST_NBYTES // 2  # of these small ones
WORDS = SearchOptions(mode=KEYWORD)


@pytest.fixture
def small(library: Library, models: Models) -> Callable[[int], Library]:
    return lambda nbytes: reopened(library, models, index_bytes=nbytes)[0]


def shelves(library: Library, models: Models, count: int = 3) -> list[Collection]:
    """Each with a book that the others lack, and without index files."""
    return [
        fill(library, models, f"shelf {number}", {"/b.txt": [f"Lamp number {number} was lit.", "A bell rang."]})
        for number in range(count)
    ]


def asked(library: Library, collection: Collection) -> str:
    """The text that only this one has."""
    with library.searching(collection) as searcher:
        (hit,) = searcher.search(f"number {collection.name.split()[-1]}", 1, options=WORDS)
        return library.catalog.chunks.found([hit.id])[0].chunk.text


def test_those_that_were_asked_longest_ago_go(
    small: Callable[[int], Library], library: Library, models: Models
) -> None:
    one, two, three = shelves(library, models)
    over = small(TWO)
    assert asked(over, one) == "Lamp number 0 was lit." and asked(over, two)
    held, going = (weakref.ref(over.searcher(each)) for each in (one, two))
    over.searcher(one)
    assert asked(over, three) == "Lamp number 2 was lit."
    gc.collect()
    assert going() is None and held() is over.searcher(one)
    usage = over.index_memory.usage
    assert (usage.collections, usage.left) == (2, 1) and usage.nbytes <= TWO
    assert asked(over, two) == "Lamp number 1 was lit.", "it comes again"


def test_one_alone_stays_however_large(small: Callable[[int], Library], library: Library, models: Models) -> None:
    one, two, _ = shelves(library, models)
    over = small(0)
    first = over.searcher(one)
    assert asked(over, one) and over.searcher(one) is first
    assert asked(over, two) and over.searcher(one) is not first
    assert over.index_memory.usage.collections == 1


def test_those_in_use_stay(small: Callable[[int], Library], library: Library, models: Models) -> None:
    one, two, three = shelves(library, models)
    over = small(0)
    with over.searching(one) as used, over.index_memory.keeping(two.uid):  # as an ingest keeps it
        kept = over.searcher(two)
        assert asked(over, three)
        assert over.searcher(one) is used and over.searcher(two) is kept
        assert over.index_memory.peek(three.uid) is None and asked(over, three)
    assert over.index_memory.usage.collections == 1 and over.index_memory.peek(three.uid)


def test_what_is_not_saved_is_saved_first(
    small: Callable[[int], Library], library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = shelves(library, models)
    over = small(0)
    assert asked(over, one) and not over.index_folder(one).exists()
    assert asked(over, two)
    assert {path.name for path in over.index_folder(one).glob("*.json")} == {"vectors.json", "keywords.json"}
    monkeypatch.setattr(KeywordIndex, "_add", None)
    monkeypatch.setattr(VectorIndex, "_add", None)
    assert asked(over, one) == "Lamp number 0 was lit.", "of its files alone"


def test_a_disk_that_is_full_keeps_nobody_from_asking(
    small: Callable[[int], Library],
    library: Library,
    models: Models,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two, _ = shelves(library, models)

    def full(index: VectorIndex, path: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(VectorIndex, "_write", full)
    over = small(0)
    assert asked(over, one) and asked(over, two) and asked(over, one) == "Lamp number 0 was lit."
    assert "were not saved" in caplog.text and over.index_memory.usage.collections == 1


def test_a_collection_that_is_deleted_meanwhile_gets_no_files_back(
    small: Callable[[int], Library], library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = shelves(library, models)
    over, save = small(0), DerivedIndex.save_if_due
    assert asked(over, one)

    def late(index: DerivedIndex) -> bool:
        if library.catalog.collections.find(one.name):
            library.catalog.collections.delete(one)
        return save(index)

    monkeypatch.setattr(DerivedIndex, "save_if_due", late)
    assert asked(over, two)
    assert not over.index_folder(one).exists() and over.index_memory.usage.left == 1


def test_one_that_is_asked_while_it_goes_stays(
    small: Callable[[int], Library], library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = shelves(library, models)
    over, save = small(0), DerivedIndex.save_if_due
    first, again = over.searcher(one), list[object]()

    def slow(index: DerivedIndex) -> bool:
        if not again:
            asking = threading.Thread(target=lambda: again.append(over.searcher(one)))
            asking.start()
            asking.join()
        return save(index)

    monkeypatch.setattr(DerivedIndex, "save_if_due", slow)
    over.searcher(two)
    assert again == [first] and over.index_memory.peek(one.uid) is first


def test_threads_find_what_they_ask_for(small: Callable[[int], Library], library: Library, models: Models) -> None:
    there = shelves(library, models, 5)
    over = small(TWO)
    order = [there[(7 * turn) % 5] for turn in range(100)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: asked(over, one), order))
    assert found == [f"Lamp number {one.name.split()[-1]} was lit." for one in order]
    usage = over.index_memory.usage
    assert usage.nbytes <= TWO and usage.collections == 2 and usage.left > 2


def test_an_ingest_keeps_its_indexes(library: Library, models: Models, tmp_path: Path) -> None:
    (other, *_) = shelves(library, models, 1)
    over, models = reopened(library, models, index_bytes=0, kv="off")
    collection, there = over.collection_or_new("new"), list[bool]()
    first = over.searcher(collection)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "bell.txt").write_text("A bell rang at noon.")

    def ask(progress: IngestProgress) -> None:
        assert asked(over, other)
        there.append(over.index_memory.peek(collection.uid) is first)

    assert Ingest(over, models, collection, progress=ask).run([tmp_path / "docs"]).added == 1
    assert there and all(there)
    assert first.vectors.position.live == 1 and asked(over, other)
    assert over.index_memory.peek(collection.uid) is None
