"""When an index is written, and who waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from retriever import RetrieverError
from retriever.derived import LEAST_TO_SAVE, PART_AT_END, DerivedIndex
from retriever.generations import Generations
from retriever.keyword_index import KeywordIndex
from retriever.source import Position
from retriever.vector_index import VectorIndex
from retriever.vectors.hnsw import Hnsw
from tests.retriever.chunks import DIMENSION, found, grow, source_of, unit

Make = Callable[[Path], DerivedIndex]
WAIT_S = 30


@pytest.fixture(params=["vectors", "keywords"])
def make(request: pytest.FixtureRequest) -> Make:
    return KeywordIndex if request.param == "keywords" else lambda folder: VectorIndex(DIMENSION, "model", folder)


def found_by(index: DerivedIndex) -> set[int]:
    if isinstance(index, VectorIndex):
        return set(found(index.search(unit(1), 10_000)[0]))
    assert isinstance(index, KeywordIndex)
    return set(index.search("chunk", 10_000)[0].tolist())


def test_few_changes_beside_many_chunks_are_left_to_who_opens_it(make: Make, tmp_path: Path) -> None:
    source = source_of(2 * PART_AT_END)
    index = make(tmp_path)
    index.catch_up(source)
    assert index.save_if_due()
    before = index.saved()
    (new,) = grow(source, 1, seed=1).tolist()
    index.catch_up(source)
    assert not index.save_if_due()
    assert index.saved() == before
    source.retire([3])
    other = make(tmp_path)
    other.catch_up(source)
    assert found_by(other) == set(range(1, new + 1)) - {3}
    assert other.save_if_due(), "two changes among 512"
    assert other.saved() == source.position()


def test_a_small_index_is_saved_at_once(make: Make, tmp_path: Path) -> None:
    source = source_of(PART_AT_END - 1)
    index = make(tmp_path)
    assert index.saved() is None
    index.catch_up(source)
    assert index.save_if_due()
    source.retire([3])
    index.catch_up(source)
    assert index.save_if_due()
    assert not index.save_if_due()


def test_vectors_in_another_structure_are_saved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start would build it again: minutes for a graph of many."""
    monkeypatch.setattr("retriever.vectors.FLAT_UP_TO", 2 * PART_AT_END)
    source, index = source_of(2 * PART_AT_END), VectorIndex(DIMENSION, "model", tmp_path)
    index.catch_up(source)
    assert index.save_if_due() and index.structure == "flat"
    grow(source, 1, seed=1)
    index.catch_up(source)
    assert index.structure == "hnsw" and index.save_if_due()
    grow(source, 1, seed=2)
    other = VectorIndex(DIMENSION, "model", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Hnsw, "build", None)
        other.catch_up(source)
    assert other.structure == "hnsw" and not other.save_if_due()


def test_a_question_saves_another_structure_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retriever.vectors.FLAT_UP_TO", LEAST_TO_SAVE)
    source, index = source_of(LEAST_TO_SAVE), VectorIndex(DIMENSION, "model", tmp_path)
    index.catch_up(source)
    grow(source, 1, seed=1)
    index.catch_up(source)
    assert index.saved() == source.position()


def test_segments_that_are_written_anew_are_saved_once(tmp_path: Path) -> None:
    """Where chunks are gone, and where few are added behind segments that are merged then, as those before."""
    source, index = source_of(4 * PART_AT_END), KeywordIndex(tmp_path)
    index.catch_up(source)
    source.retire(range(1, PART_AT_END + 1))
    index.catch_up(source)
    assert index.save_if_due()
    source.retire([PART_AT_END + 1])
    index.catch_up(source)
    assert not index.save_if_due(), "it was written without those that are gone"
    for count in (300, 150, 75, 37, 18, 9, 4, 2):
        grow(source, count, seed=count)
        index.catch_up(source)
    index.save()
    grow(source, 2, seed=2)
    index.catch_up(source)
    assert index.save_if_due(), "two segments of two, and so on"
    grow(source, 2, seed=3)
    index.catch_up(source)
    assert not index.save_if_due()


def test_a_file_that_is_not_trusted_does_not_stay(make: Make, tmp_path: Path) -> None:
    source, index = source_of(5), make(tmp_path)
    index.catch_up(source)
    index.save()
    (manifest,) = tmp_path.glob("*.json")
    manifest.write_text("{")
    assert index.saved() == Position()
    source.retire(range(1, 6))
    other = make(tmp_path)
    other.catch_up(source)
    assert other.save_if_due()
    assert other.saved() == source.position()


def test_a_save_that_failed_is_tried_at_the_end(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> bool:
        raise OSError("no space left on device")

    source, index = source_of(LEAST_TO_SAVE), make(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Generations, "publish", fail)
        index.catch_up(source)
    assert index.saved() is None
    assert index.save_if_due()


def test_two_that_build_anew_leave_the_newer_file(make: Make, tmp_path: Path) -> None:
    """Of a version before: what was deleted since came back with the older one, and stayed."""
    source = source_of(40)
    old = make(tmp_path)
    old._identity = "of a version before"
    old.catch_up(source)
    old.save()
    first, second = make(tmp_path), make(tmp_path)
    for index in (first, second):
        index.catch_up(source)
    source.retire([3])
    first.catch_up(source)
    assert first.save() and first.saved() == source.position()
    assert not second.save() and second.saved() == source.position()


def test_a_file_that_is_distrusted_is_written_anew_though_it_says_as_much(make: Make, tmp_path: Path) -> None:
    source, index = source_of(40), make(tmp_path)
    index.catch_up(source)
    index.save()
    (manifest,) = tmp_path.glob("*.json")
    (file,) = (path for path in tmp_path.iterdir() if path.suffix in (".faiss", ".bm25"))
    file.write_bytes(bytes(file.stat().st_size))
    before, other = manifest.read_text(), make(tmp_path)
    other.catch_up(source)
    assert other.save() and manifest.read_text() != before


def test_a_save_looks_at_the_disk(make: Make, tmp_path: Path) -> None:
    """Another process may have written an older file since, or deleted this."""
    source, first = source_of(40), make(tmp_path)
    first.catch_up(source)
    second = make(tmp_path)
    second.catch_up(source)
    source.retire([3])
    first.catch_up(source)
    assert first.save() and not first.save()
    for path in tmp_path.glob("*.json"):
        path.unlink()
    assert second.save() and second.saved() != source.position()
    assert first.save() and first.saved() == source.position()


def test_a_full_disk_is_told_as_such(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAISS raises a RuntimeError, which would look like a bug."""
    source, index = source_of(LEAST_TO_SAVE), make(tmp_path)
    write = index._write
    with monkeypatch.context() as patch:
        patch.setattr(index, "_write", lambda path: write(Path("/dev/full")))
        index.catch_up(source)
        with pytest.raises(RetrieverError, match=r"cannot save an index in .*Free some space"):
            index.save()
    assert found_by(index) and index.save()


def test_questions_do_not_wait_for_a_file_that_is_written(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, index = source_of(40), make(tmp_path)
    index.catch_up(source)
    writing, asked = threading.Event(), threading.Event()
    write = index._write
    waited: list[bool] = []

    def slow(path: Path) -> None:
        writing.set()
        waited.append(asked.wait(WAIT_S))
        write(path)

    monkeypatch.setattr(index, "_write", slow)
    saving = threading.Thread(target=index.save)
    saving.start()
    assert writing.wait(WAIT_S)
    index.catch_up(source)
    assert found_by(index) == set(range(1, 41))
    asked.set()
    saving.join()
    assert waited == [True]
    source.retire([3])
    index.catch_up(source)
    assert found_by(index) == set(range(1, 41)) - {3}


def test_what_changes_meanwhile_is_not_in_the_file_but_found(make: Make, tmp_path: Path) -> None:
    """A change waits until the file is whole, and whoever reads the file catches up."""
    source, index = source_of(40), make(tmp_path)
    index.catch_up(source)
    write, changes = index._write, list[threading.Thread]()

    def slow(path: Path) -> None:
        source.retire([3])
        changes.append(threading.Thread(target=index.catch_up, args=(source,)))
        changes[0].start()
        write(path)

    index._write = slow  # type: ignore[method-assign]  # to change the source amid
    assert index.save()
    changes[0].join()
    saved = index.saved()
    assert saved is not None and saved.live == 40
    other = make(tmp_path)
    other.catch_up(source)
    assert found_by(other) == found_by(index) == set(range(1, 41)) - {3}
