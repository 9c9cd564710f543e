"""Whose a restored catalog is, and what is kept of the one before."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from app.errors import CatalogError
from app.library.catalog.schema import upgrade
from tests.app.library.catalog.test_copies import data, database, names
from tests.app.library.catalog.test_failures import public_folder
from tests.app.library.catalog.test_restoring import changed, newer, put_back
from tests.rights import without_rights

__all__ = ["changed", "data", "public_folder"]


def test_who_could_use_a_catalog_can_use_the_restored_one(data: Path, changed: Path) -> None:
    path = data / "catalog.sqlite"
    path.chmod(0o664)
    if os.geteuid() == 0:
        os.chown(path, 1234, 5678)
    before = path.stat()
    kept = put_back(data, changed).kept
    for file in (path, kept):
        after = file.stat() if file else None
        assert after and (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_root_leaves_the_owner_what_it_makes(
    data: Path, changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the catalog makes backups beside root's, and drops them."""
    if os.geteuid():
        pytest.skip("only root can work for another user")
    os.chown(data / "catalog.sqlite", 1234, 5678)
    linked = put_back(data, changed).kept

    def refuse(*paths: Path) -> None:
        raise OSError(errno.EPERM, "no second names here")

    monkeypatch.setattr(os, "link", refuse)
    copied = put_back(data, changed, keep=9).kept
    path = database(data)
    upgraded = upgrade(path, 1, newer(tmp_path / "newer"))
    path.close()
    assert linked and copied and upgraded
    for made in (data / "backups", linked, copied, upgraded):
        assert (made.stat().st_uid, made.stat().st_gid) == (1234, 5678), made


def test_a_catalog_whose_rights_cannot_be_kept_stays(public_folder: Path, changed: Path) -> None:
    """Restored by another user who may write there, it would be theirs alone."""
    if os.geteuid():
        pytest.skip("only root can make a file of another user")
    shared, copy = public_folder / "catalog.sqlite", public_folder / "copy.sqlite"
    for path in (shared, copy):
        shutil.copyfile(changed, path)
        path.chmod(0o666)
    public_folder.chmod(0o777)
    with without_rights(), pytest.raises(CatalogError, match="belongs to a user or a group that you may give no files"):
        put_back(public_folder, copy)
    assert shared.stat().st_mode & 0o777 == 0o666 and names(public_folder / "backups") == set()
