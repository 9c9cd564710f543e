"""File systems on which SQLite is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import make_url

from app.errors import CatalogError
from app.library.catalog.database import Database, refuse_network
from ragcache.host import file_system

TABLE = """\
overlay / overlay rw,relatime 0 0
proc /proc proc rw 0 0
/dev/sda1 /home ext4 rw 0 0
host:/srv /home/ann/shared nfs4 rw,vers=4.2 0 0
systemd-1 /auto autofs rw 0 0
//nas/books /auto/books cifs rw 0 0
me@host: /mnt/a\\040folder fuse.sshfs rw 0 0
C:\\134 /mnt/c 9p rw 0 0
host /host virtiofs rw 0 0
/dev/sdb1 /mnt/drive fuseblk rw 0 0
old:/x /twice nfs rw 0 0
/dev/sdc1 /twice xfs rw 0 0
torn
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    table = tmp_path / "mounts"
    table.write_text(TABLE)
    return table


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/ann/shared/data", "nfs4"), ("/auto/books", "cifs"), ("/mnt/a folder/x/y", "fuse.sshfs"),
        ("/mnt/c/Users", "9p"),
    ],
)  # fmt: skip
def test_a_network_file_system_is_refused_with_its_name(mounts: Path, folder: str, kind: str) -> None:
    with pytest.raises(CatalogError, match="RAGCACHE_DATA_DIR, or PostgreSQL with RAGCACHE_DATABASE_URL") as failed:
        refuse_network(Path(folder, "catalog.sqlite"), mounts)
    assert f"({kind})" in str(failed.value) and folder in str(failed.value)


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "overlay"), ("/home/ann", "ext4"), ("/home/ann/shared2", "ext4"), ("/auto", "overlay"),
        ("/host/data", "virtiofs"), ("/mnt/drive", "fuseblk"), ("/twice", "xfs"), ("/not/yet/there", "overlay"),
    ],
)  # fmt: skip
def test_others_are_fine(mounts: Path, folder: str, kind: str) -> None:
    assert file_system(Path(folder), mounts) == kind
    refuse_network(Path(folder, "catalog.sqlite"), mounts)


def test_the_root_of_a_container_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text("none / 9p rw,trans=fd 0 0\n")
    refuse_network(Path("/data/catalog.sqlite"), tmp_path / "mounts")
    (tmp_path / "mounts").write_text("server:/root / nfs rw 0 0\n")
    with pytest.raises(CatalogError, match=r"\(nfs\)"):
        refuse_network(Path("/data/catalog.sqlite"), tmp_path / "mounts")


def test_where_nothing_is_known_nothing_is_refused(tmp_path: Path) -> None:
    refuse_network(tmp_path / "catalog.sqlite", tmp_path / "no such table")


def test_a_link_is_followed_and_a_database_looks(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    table = tmp_path / "mounts"
    table.write_text(f"/dev/sda1 / ext4 rw 0 0\nhost:/x {tmp_path}/real nfs rw 0 0\n")
    with pytest.raises(CatalogError, match=r"network file system \(nfs\)"):
        Database(make_url(f"sqlite:///{tmp_path}/link/catalog.sqlite"), mounts=table)
    Database(make_url("postgresql+psycopg://host/books"), mounts=table)
    Database(make_url(f"sqlite:///{tmp_path}/catalog.sqlite"), mounts=table).close()


def test_the_file_itself_may_be_a_link(tmp_path: Path) -> None:
    nas, here, mounts = tmp_path / "nas", tmp_path / "here", tmp_path / "mounts"
    here.mkdir()
    mounts.write_text(f"host:/srv {nas} nfs4 rw 0 0\n")
    (here / "catalog.sqlite").symlink_to(nas / "catalog.sqlite")
    with pytest.raises(CatalogError, match=r"would be on a network file system \(nfs4\)"):
        refuse_network(here / "catalog.sqlite", mounts)
