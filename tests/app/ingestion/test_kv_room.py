"""`auto`: KV as far as budget and disk go, and none that is there makes room for it."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from app import RagPipeline, Settings
from app.errors import IngestError
from app.ingestion import IngestOptions
from app.ingestion.ingest import Ingest
from app.ingestion.room import KvRoom, KvTurn
from app.library import Library
from app.models import Models
from app.models.loading import load_store
from ragcache.host import free_bytes
from ragcache.store.layout import written_beside
from tests.app.ingestion.conftest import WORDS, Run, budget, files, nbytes


@pytest.mark.parametrize("tight", ["budget", "disk"])
def test_a_document_that_does_not_fit_is_on_use(
    ingest: Run, library: Library, models: Models, books: Path, of_one: int, tight: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, settings = files(library.settings), library.settings
    if tight == "budget":
        budget(library, models, round(2.5 * of_one))
    else:
        monkeypatch.setattr(Settings, "disk_floor", 1 << 30)
        monkeypatch.setattr(
            "app.ingestion.room.free_bytes", lambda _: (1 << 30) + round(2.5 * of_one) - nbytes(settings)
        )
    result = ingest(kv="auto")
    assert (result.added, result.unchanged, result.failed, result.on_use) == (2, 1, (), 1)
    (note,) = result.notes
    assert note.startswith("1 document has KV on use") and "`ragcache cache warm -c default`" in note
    assert ("raise RAGCACHE_DISK_BYTES" in note) is (tight == "budget")
    assert ("free space on the disk" in note) is (tight == "disk")
    assert {*before} < {*files(settings)}
    assert nbytes(settings) <= 2.5 * of_one
    library.catalog.check_integrity()


def index_handles(settings: Settings) -> int:
    links = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return sum(link.startswith(str(settings.kv_folder / "index.sqlite")) for link in links)


def test_an_ingest_leaves_nothing_open(ingest: Run, library: Library, docs: Path) -> None:
    """A server does one after the other, and no garbage may come to be collected for long."""
    (docs / "first.txt").write_text(WORDS["harbour"])
    ingest(kv="auto")
    gc.disable()
    try:
        before = index_handles(library.settings)
        for name, words in WORDS.items():
            (docs / f"{name}.txt").write_text(words)
            assert ingest(kv="auto").kv_bytes > 0 or name == "harbour"
        assert index_handles(library.settings) == before
    finally:
        gc.enable()


def test_the_catalog_of_what_is_to_come_has_its_room(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = KvRoom(models, "auto")
    assert room.now
    room.keep_for({"/large.txt": free_bytes(library.settings.kv_folder)})
    assert not room.now and "free space on the disk" in room.more()
    monkeypatch.setattr("app.ingestion.room.one_disk", lambda *_: False)
    assert room.now, "it is on another disk"


def test_an_ingest_goes_by_the_budget_that_is_in_force(library: Library, models: Models) -> None:
    """Also one that has begun: whoever serves may change it."""
    room = KvRoom(models, "auto")
    assert room._of_budget() == library.settings.disk_bytes - nbytes(library.settings)
    models.store.resize("disk", 5_000_000)
    for one in (room, KvRoom(models, "auto"), KvRoom(models, "auto", looking=True)):
        assert one._of_budget() == 5_000_000 - nbytes(library.settings)
        assert one.store.kept.budget == 5_000_000


def test_the_room_of_the_catalog_is_left_as_the_files_go_in(
    ingest: Run, library: Library, books: Path, of_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = list[int]()

    def choose(room: KvRoom, sizes: Iterable[int]) -> list[bool]:
        kept.append(room.kept)
        return [False for _ in sizes]

    monkeypatch.setattr(KvRoom, "choose", choose)
    came = list[int]()
    left = KvRoom.came
    monkeypatch.setattr(KvRoom, "came", lambda room, file: (left(room, file), came.append(room.kept)))
    assert ingest(kv="auto").on_use == 2
    assert kept[0] > sum(path.stat().st_size for path in books.iterdir()) / 3, "nothing of the batch is in yet"
    assert came[-1] == 0 and sorted(came, reverse=True) == came


def test_a_small_one_behind_a_large_one_fits(
    ingest: Run, library: Library, models: Models, books: Path, of_one: int
) -> None:
    (books / "bakery.txt").write_text(WORDS["bakery"] * 30)
    (books / "harbour.txt").write_text("A word.")
    budget(library, models, 3 * of_one)
    result = ingest(books / "bakery.txt", books / "harbour.txt", kv="auto")
    assert (result.added, result.replaced, result.on_use) == (1, 1, 1)
    assert result.kv_variants


@pytest.mark.parametrize("kv", ["on-use", "off"])
def test_an_ingest_without_kv_loads_no_model(
    ingest: Run, library: Library, models: Models, books: Path, kv: str
) -> None:
    models.language = None  # type: ignore[assignment]
    result = ingest(kv=kv)
    assert (result.added, result.kv_variants, result.notes) == (3, 0, ())
    assert result.on_use == (3 if kv == "on-use" else 0)
    assert files(library.settings) == []


def test_others_may_take_the_room_meanwhile(
    ingest: Run, library: Library, models: Models, books: Path, of_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is chosen and does not fit any more pushes nothing out, and the document is in all the same."""
    before = files(library.settings)
    budget(library, models, of_one + 60_000)
    monkeypatch.setattr("app.ingestion.room.KvRoom.left", lambda _: 1 << 40)
    result = ingest(kv="auto")
    assert (result.added, result.on_use) == (2, 2)
    assert {*before} <= {*files(library.settings)}
    assert nbytes(library.settings) <= of_one + 60_000
    assert load_store(library.settings).verify() == []


def test_a_full_disk_midway_leaves_nothing_half_written(
    ingest: Run, library: Library, models: Models, books: Path, of_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(library.settings)
    calls = iter(range(10_000))

    def full(*arguments: object) -> object:
        if next(calls) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written_beside(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as midway:
        midway.setattr("ragcache.store.disk.written_beside", full)
        result = ingest(kv="auto")
    assert (result.added, result.failed, result.on_use) == (2, (), 2)
    assert sum("KV on use" in note for note in result.notes) == 1
    assert {*before} <= {*files(library.settings)}
    assert [path for path in library.settings.kv_folder.rglob("*") if path.parent.name == "writing"] == []
    store = load_store(library.settings)
    assert store.verify() == []
    store.check_integrity()
    assert ingest(kv="auto").unchanged == 3


@pytest.mark.parametrize("code", [errno.EDQUOT, errno.ENOSPC])
def test_a_disk_that_takes_less_than_it_tells_is_not_asked_on(
    ingest: Run, library: Library, models: Models, books: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A quota: nothing is computed in vain for the documents behind, and the advice is of the disk."""
    for name in ("mill", "ferry"):
        (books / f"{name}.txt").write_text(f"{WORDS['harbour']} And the {name}.")
    monkeypatch.setattr("app.ingestion.writer.TOGETHER", 1)  # each is a batch of its own
    asked = list[object]()

    def full(path: object, *arguments: object) -> object:
        asked.append(path)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("ragcache.store.disk.written_beside", full)
    result = ingest(kv="auto")
    assert (result.added, result.failed, result.on_use) == (5, (), 5)
    assert len(asked) == 2, "the System segment and one chunk"
    (note,) = result.notes
    assert "free space on the disk of" in note and os.strerror(code) in note
    assert "RAGCACHE_DISK_BYTES" not in note


def test_without_a_budget_it_stays_in_ram_and_is_told(
    ingest: Run, library: Library, models: Models, books: Path
) -> None:
    budget(library, models, 0)
    result = ingest(kv="auto")
    assert (result.added, result.on_use, result.kv_variants) == (3, 3, 0)
    assert result.notes == ("no KV is kept on the disk, since RAGCACHE_DISK_BYTES is 0",)


def test_answers_come_and_nothing_is_full(
    library: Library, models: Models, books: Path, of_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small disk, of which all but the floor is taken: answers keep what they find in the place of what is old."""
    room = 2 * of_one
    monkeypatch.setattr(Settings, "disk_floor", 1 << 30)
    for module in ("app.ingestion.room", "ragcache.store.disk_room"):
        monkeypatch.setattr(f"{module}.free_bytes", lambda _: (1 << 30) + room - nbytes(library.settings))
    del models.store
    Ingest(library, models, library.collection(), IngestOptions(workers=1)).run([books])
    with RagPipeline(over=(library, models)) as rag:
        for name in WORDS:
            answer = rag.ask(f"What is told of the {name}?", max_tokens=3)
            rag.settle()
            assert answer.citations and not answer.report.incidents
            assert nbytes(library.settings) <= room + 100_000
    models.store.check_integrity()


def test_kv_names_a_mode() -> None:
    with pytest.raises(IngestError, match="kv='never': choose from auto, eager, on-use, off"):
        IngestOptions(kv="never")  # type: ignore[arg-type]


def test_what_crowds_other_kv_out_has_one_more_turn(models: Models) -> None:
    """In each it may make room by what it computed before; what it has not computed by then is left to use."""
    noted = list[str]()

    def room(*, goes_on: bool) -> KvRoom:
        return KvRoom(models, "eager", turn=KvTurn(lambda: True, lambda: noted.append("put off") is None, goes_on))

    first, second = room(goes_on=False), room(goes_on=True)
    assert first.gives_way(lambda: True) and first.put_off and noted == ["put off"]
    assert first.gives_way(lambda: True) and noted == ["put off"], "once"
    assert second.gives_way(lambda: True) and not second.put_off and noted == ["put off"]
    assert second.gives_way(lambda: False) and second.put_off
    assert not KvRoom(models, "eager").gives_way(lambda: True)
