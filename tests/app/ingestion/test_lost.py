"""Which documents an ingest with --prune may delete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import IngestError
from app.ingestion import IngestOptions, IngestResult
from app.ingestion.ingest import Ingest
from app.ingestion.survey import lost_documents, take_survey
from app.library import Library
from app.library.catalog.records import FileState
from app.models import Models
from tests.rights import without_rights

Run = Callable[..., IngestResult]
IN = ("disk/a.txt", "disk/deep/b.txt", "home/c.txt", "home/d.txt")


def states(folder: Path, *sources: str) -> dict[str, FileState]:
    return {
        str(folder / source): FileState(number, "h", 5, 1, "ready", 0, None) for number, source in enumerate(sources)
    }


def names(folder: Path, sources: object) -> list[str]:
    assert hasattr(sources, "__iter__")
    return [str(Path(source).relative_to(folder)) for source in sources]


@pytest.fixture
def tree(ingest: Run, docs: Path) -> Path:
    """Two folders with two documents each."""
    for source in IN:
        (docs / source).parent.mkdir(parents=True, exist_ok=True)
        (docs / source).write_text(f"Words of {source}.")
    assert ingest(docs).added == 4
    return docs


def unmounted(folder: Path) -> None:
    """What a mount point looks like then."""
    shutil.rmtree(folder)
    folder.mkdir()


def left(library: Library) -> int:
    return len(library.catalog.documents.all(library.collection()))


def test_only_what_is_surely_gone_is_gone(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.txt").write_text("words")
    known = states(tmp_path, "here/a.txt", "here/b.txt", "here/a.txt/inside.txt", "lost/c.txt", "lost.txt", "o/d.txt")

    def lost(*paths: str, **options: bool) -> tuple[list[int], list[str], list[str]]:
        found = lost_documents([tmp_path / path for path in paths], known, **options)
        return list(found.documents.values()), names(tmp_path, found.absent), names(tmp_path, found.emptied)

    assert lost("here") == ([1, 2], [], [])
    assert lost("lost", "lost.txt") == ([4], ["lost"], [])
    assert lost("lost", everything=True) == ([3], [], [])
    assert lost(".") == ([1, 2, 3, 4, 5], [], [])
    assert lost(".", "lost") == ([1, 2, 4, 5], ["lost"], []), "a folder that was named is a disk of its own"
    assert lost("hers") == ([], [], [])


def test_a_named_file_whose_folder_is_bare_may_be_on_a_missing_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    known = states(tmp_path, "disk/a.txt", "gone/b.txt")
    found = lost_documents([tmp_path / "disk" / "a.txt", tmp_path / "gone" / "b.txt"], known)
    assert (found.documents, found.absent) == ({}, {})
    assert names(tmp_path, found.emptied) == ["disk/a.txt", "gone/b.txt"]
    (tmp_path / "disk" / "other.txt").write_text("still mounted")
    assert names(tmp_path, lost_documents([tmp_path / "disk" / "a.txt"], known).documents) == ["disk/a.txt"]


def test_a_disk_that_the_system_knows_is_missed_below_a_path_too(tmp_path: Path) -> None:
    (tmp_path / "a disk").mkdir()
    (tmp_path / "here.txt").write_text("words")
    known = states(tmp_path, "a disk/a.txt", "a disk/deep/b.txt", "here.txt", "gone.txt")
    fstab = tmp_path / "fstab"
    point = str(tmp_path / "a disk").replace(" ", "\\040")
    fstab.write_text(f"# disks\n\nUUID=1 / ext4 defaults 0 1\nnas:/x {point} nfs noauto 0 0\nUUID=2 none swap sw 0 0\n")
    found = lost_documents([tmp_path], known, fstab=fstab)
    assert names(tmp_path, found.documents) == ["gone.txt"]
    assert (dict(found.absent), found.emptied) == ({str(tmp_path / "a disk"): 2}, {})
    assert len(lost_documents([tmp_path], known, everything=True, fstab=fstab).documents) == 3
    assert len(lost_documents([tmp_path], known, fstab=tmp_path / "none").documents) == 3


@pytest.mark.parametrize("written", ["docs/usb/", "link/usb", "link", "/docs//usb", "docs/../docs/usb"])
def test_a_place_of_a_disk_may_be_written_in_any_way(tmp_path: Path, written: str) -> None:
    (tmp_path / "docs" / "usb").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / ("docs/usb" if written == "link" else "docs"))
    (tmp_path / "docs" / "here.txt").write_text("words")
    known, fstab = states(tmp_path, "docs/usb/a.txt", "docs/b.txt", "docs/here.txt"), tmp_path / "fstab"
    fstab.write_text(f"  # UUID=0 {tmp_path}/docs ext4\nUUID=1 {tmp_path}/{written} ext4 noauto 0 0\n")
    found = lost_documents([tmp_path / "docs"], known, fstab=fstab)
    assert names(tmp_path, found.documents) == ["docs/b.txt"]
    assert names(tmp_path, found.absent) == ["docs/usb"]


def test_only_places_above_what_is_gone_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that does not answer elsewhere would keep the ingest waiting."""
    looked: list[object] = []
    real = os.path.ismount
    monkeypatch.setattr(os.path, "ismount", lambda path: (looked.append(path), real(path))[1])
    (tmp_path / "here.txt").write_text("words")
    fstab = tmp_path / "fstab"
    fstab.write_text(f"nas:/x /net/away nfs hard 0 0\nUUID=1 {tmp_path}/disk ext4 noauto 0 0\n")
    lost_documents([tmp_path], states(tmp_path, "here.txt"), fstab=fstab)
    assert looked == []
    lost_documents([tmp_path], states(tmp_path, "here.txt", "disk/a.txt"), fstab=fstab)
    assert looked == [str(tmp_path / "disk")]


def test_what_is_below_a_folder_that_cannot_be_listed_stays(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "a.txt").write_text("words")
    known = states(tmp_path, "open/a.txt", "open/sub/b.txt", "open/c.txt")
    for everything in (False, True):
        found = lost_documents([tmp_path], known, [tmp_path / "open" / "sub"], everything)
        assert names(tmp_path, found.documents) == ["open/c.txt"]


def test_a_folder_without_rights_is_not_empty(tmp_path: Path) -> None:
    for one in (tmp_path, *tmp_path.parents):
        if one.stat().st_mode & 0o005 != 0o005:
            one.chmod(0o755)
    (tmp_path / "closed").mkdir(mode=0)
    known = states(tmp_path, "closed/a.txt", "closed/deep/b.txt", "c.txt")
    with without_rights():
        survey = take_survey([tmp_path], IngestOptions(), {})
        assert survey.unlisted == (tmp_path / "closed",)
        found = lost_documents([tmp_path], known, survey.unlisted, everything=True)
    assert names(tmp_path, found.documents) == ["c.txt"]


def test_an_empty_mount_point_deletes_nothing(ingest: Run, library: Library, tree: Path) -> None:
    unmounted(tree / "disk")
    (tree / "home" / "new.txt").write_text("New.")
    for dry in (True, False):
        with pytest.raises(IngestError, match=r"none of the 2 files that were below .*disk is there now.*--prune=all"):
            ingest(tree / "disk", tree / "home", prune=True, dry_run=dry)
        with pytest.raises(IngestError, match="is its disk mounted"):
            ingest(tree, tree / "disk", prune=True, dry_run=dry)
    assert left(library) == 4, "nothing is added either: it is refused at once"
    (tree / "disk" / "foreign.txt").write_text("Another disk.")
    with pytest.raises(IngestError, match="none of the 2 files"):
        ingest(tree / "disk", prune=True)
    assert ingest(tree / "disk", prune="all").pruned == 2
    assert left(library) == 3
    with pytest.raises(IngestError, match="prune='everything': choose True, False or 'all'"):
        IngestOptions(prune="everything")  # type: ignore[arg-type]


def test_a_disk_that_goes_while_files_are_read_deletes_nothing(library: Library, models: Models, tree: Path) -> None:
    (tree / "disk" / "new.txt").write_text("New.")
    collection = library.collection()
    options = IngestOptions(kv="on-use", workers=1, prune=True)
    run = Ingest(library, models, collection, options, lambda _: unmounted(tree / "disk"))
    with pytest.raises(IngestError, match="is its disk mounted"):
        run.run([tree / "disk"])
    assert left(library) == 5


def test_a_dry_run_names_what_would_go(ingest: Run, library: Library, tree: Path) -> None:
    (tree / IN[1]).unlink()
    told = ingest(tree, prune=True, dry_run=True)
    assert (told.pruned, told.gone) == (1, (str(tree / IN[1]),))
    assert left(library) == 4
    done = ingest(tree, prune=True)
    assert (done.pruned, done.gone) == (1, told.gone)
    assert ingest(tree).gone == ()
