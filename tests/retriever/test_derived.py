"""What both indexes do: follow a source, outlive the program by files, and never trust what does not fit."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from retriever import RetrieverError
from retriever.derived import LEAST_TO_SAVE, DerivedIndex
from retriever.keyword_index import KeywordIndex
from retriever.memory_source import MemorySource
from retriever.source import Position
from retriever.vector_index import VectorIndex
from tests.retriever.chunks import DIMENSION, found, grow, source_of, unit

Make = Callable[[Path | None], DerivedIndex]
INDEXES: dict[str, Make] = {
    "vectors": lambda folder: VectorIndex(DIMENSION, "model", folder),
    "hnsw": lambda folder: VectorIndex(DIMENSION, "model", folder, "hnsw"),
    "ivf": lambda folder: VectorIndex(DIMENSION, "model", folder, "ivf"),
    "keywords": KeywordIndex,
}


@pytest.fixture(params=INDEXES)
def make(request: pytest.FixtureRequest) -> Make:
    return INDEXES[request.param]


def everything(index: DerivedIndex) -> set[int]:
    """Ids of all chunks that a search can find."""
    index.check_integrity()
    if isinstance(index, VectorIndex):
        return set(found(index.search(unit(1), 10_000)[0]))
    assert isinstance(index, KeywordIndex)
    return set(index.search("chunk", 10_000)[0].tolist())


def live(source: MemorySource) -> set[int]:
    return set(source.live_ids({}).tolist())


def opened(make: Make, folder: Path | None, source: MemorySource) -> DerivedIndex:
    index = make(folder)
    index.catch_up(source)
    return index


def data_file(folder: Path) -> Path:
    (path,) = [path for path in folder.iterdir() if path.suffix in (".faiss", ".bm25")]
    return path


def test_it_follows_its_source(make: Make) -> None:
    source = source_of(0)
    index = opened(make, None, source)
    assert everything(index) == set()
    grow(source, 50)
    index.catch_up(source)
    source.retire(range(1, 20))
    grow(source, 30, seed=1)
    index.catch_up(source)
    assert everything(index) == live(source)
    source.retire(live(source))
    index.catch_up(source)
    assert everything(index) == set()
    assert index.position == source.position() == Position(80, 80, 0)


def test_the_next_program_reads_the_file_and_catches_up(make: Make, tmp_path: Path) -> None:
    source = source_of(100)
    assert opened(make, tmp_path, source).save()
    grow(source, 20, seed=1)
    source.retire([1, 2, 110])

    asked: list[int] = []
    added = source.added

    def watched(after: int, batch: int = 4096) -> object:
        asked.append(after)
        return added(after, batch)

    source.added = watched  # type: ignore[method-assign,assignment]  # to see from where on it reads
    index = opened(make, tmp_path, source)
    assert everything(index) == live(source)
    assert min(asked) >= 99, "not from the start"


def test_a_save_without_changes_writes_nothing(make: Make, tmp_path: Path) -> None:
    source = source_of(10)
    index = opened(make, tmp_path, source)
    assert index.save()
    before = data_file(tmp_path)
    assert not index.save()
    assert not opened(make, tmp_path, source).save()
    assert data_file(tmp_path) == before


def test_an_empty_index_leaves_no_file(make: Make, tmp_path: Path) -> None:
    assert not opened(make, tmp_path / "new", source_of(0)).save()
    assert not (tmp_path / "new").exists()


def test_small_changes_are_saved_together(make: Make, tmp_path: Path) -> None:
    source = source_of(10)
    index = opened(make, tmp_path, source)
    assert list(tmp_path.iterdir()) == []
    grow(source, LEAST_TO_SAVE, seed=1)
    index.catch_up(source)
    assert data_file(tmp_path).exists()


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_torn_file_is_made_again(make: Make, tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture) -> None:
    source = source_of(100)
    opened(make, tmp_path, source).save()
    path = data_file(tmp_path)
    path.write_bytes(path.read_bytes()[:cut])
    with caplog.at_level(logging.WARNING):
        index = opened(make, tmp_path, source)
    assert "will be made again" in caplog.text
    assert everything(index) == live(source)
    assert index.save(), "the torn file must not stay"
    assert opened(make, tmp_path, source).save() is False


@pytest.mark.slow
def test_a_flipped_bit_anywhere_is_seen(make: Make, tmp_path: Path) -> None:
    source = source_of(40)
    opened(make, tmp_path, source).save()
    path = data_file(tmp_path)
    whole = path.read_bytes()
    for at in np.random.default_rng(0).integers(0, len(whole), 10).tolist():
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert everything(opened(make, tmp_path, source)) == live(source)


def test_a_file_with_a_right_checksum_of_something_else(make: Make, tmp_path: Path) -> None:
    """As a bug, or somebody's script, could leave it."""
    source = source_of(40)
    index = opened(make, tmp_path, source)
    generations = index._generations
    assert generations is not None
    for size in (0, 1000):
        write = partial(Path.write_bytes, data=b"nonsense" * size)
        generations.publish(index._identity, index.position, {}, write, over=generations.mark())
        assert everything(opened(make, tmp_path, source)) == live(source)


def test_another_history_is_seen(make: Make, tmp_path: Path) -> None:
    """The same ids and as many chunks, of other texts: a database that was restored, or somebody else's files."""
    opened(make, tmp_path, source_of(40)).save()
    other = MemorySource(DIMENSION)
    other.add(["chunk of another length altogether, really"] * 40, unit(40, seed=5))
    index = opened(make, tmp_path, other)
    index.check_integrity()
    if isinstance(index, VectorIndex):
        assert found(index.search(unit(40, seed=5)[3], 1)[0]) == [4]
    else:
        assert isinstance(index, KeywordIndex)
        assert len(index.search("altogether", 100)[0]) == 40


def test_a_shorter_history_is_seen(make: Make, tmp_path: Path) -> None:
    long = source_of(40)
    long.retire([3])
    opened(make, tmp_path, long).save()
    for short in (source_of(20), source_of(40)):
        assert everything(opened(make, tmp_path, short)) == live(short)


def test_a_manifest_that_lost_count_is_seen(make: Make, tmp_path: Path) -> None:
    source = source_of(40)
    opened(make, tmp_path, source).save()
    (manifest,) = tmp_path.glob("*.json")
    told = json.loads(manifest.read_text())
    grow(source, 5)
    manifest.write_text(json.dumps(told | {"high": 43}))  # so 41, 42 and 43 would never be added
    assert everything(opened(make, tmp_path, source)) == live(source)


def test_two_programs_share_a_folder(make: Make, tmp_path: Path) -> None:
    source = source_of(40)
    one, other = opened(make, tmp_path, source), opened(make, tmp_path, source)
    assert one.save()
    assert not other.save(), "as much is there already"
    grow(source, 5)
    other.catch_up(source)
    assert other.save()
    assert everything(one) == set(range(1, 41))
    one.catch_up(source)
    assert everything(one) == everything(other) == everything(opened(make, tmp_path, source)) == live(source)


def test_a_rebuild_writes_even_over_as_much(make: Make, tmp_path: Path) -> None:
    source = source_of(40)
    index = opened(make, tmp_path, source)
    index.save()
    before = data_file(tmp_path)
    index.rebuild(source)
    assert everything(index) == live(source)
    assert index.save()
    assert data_file(tmp_path) != before


def test_a_folder_that_cannot_be_written(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("where the folder should be")
    source = source_of(LEAST_TO_SAVE)
    with caplog.at_level(logging.WARNING):
        index = opened(make, blocked, source)
    assert "was not saved" in caplog.text
    assert everything(index) == live(source)
    with pytest.raises(RetrieverError, match="cannot save an index in"):
        index.save()


def test_threads_search_while_it_follows(make: Make) -> None:
    source = source_of(200)
    index = opened(make, None, source)
    wrong: list[object] = []

    def search() -> None:
        for _ in range(30):
            index.catch_up(source)
            if isinstance(index, VectorIndex):
                ids = found(index.search(unit(1), 300)[0])
            else:
                assert isinstance(index, KeywordIndex)
                ids = index.search("chunk", 300)[0].tolist()
            if len(set(ids)) != len(ids) or len(ids) < 150:
                wrong.append(ids)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(10):
        grow(source, 5, seed=number)
        source.retire(range(5 * number + 1, 5 * number + 6))
    for thread in threads:
        thread.join()
    assert wrong == []
    index.catch_up(source)
    assert everything(index) == live(source)


def test_what_is_there_is_not_added_twice(make: Make) -> None:
    """A program that was interrupted between a change and the note of it does the change again."""
    source = source_of(20)
    index = opened(make, None, source)
    for ids, texts, vectors in source.added(10):
        index._add(ids, texts, vectors)
    index._remove(np.array([3, 99]))
    index._remove(np.array([3, 99]))
    assert index.live == 19
    source.retire([3])
    index.catch_up(source)
    assert everything(index) == live(source)
