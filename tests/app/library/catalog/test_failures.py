from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy import text

from app.errors import CatalogError, NotFound
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.database import Database, database_url
from app.library.catalog.failures import POSTGRESQL, catalog_failures
from app.library.catalog.records import Collection
from app.library.catalog.schema import inspect_schema
from app.settings import Settings
from tests.app.library.catalog.samples import document, make_collection
from tests.postgres import PASSWORD, USER, Server
from tests.rights import without_rights


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that others can reach, which pytest's are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def refusal(settings: Settings) -> str:
    with pytest.raises(CatalogError) as failed:
        open_catalog(settings)
    assert PASSWORD not in "".join(traceback.format_exception(failed.value))
    assert "\n" not in str(failed.value)
    return str(failed.value)


@pytest.mark.parametrize(
    ("user", "password", "database", "said"),
    [
        (USER, "wrong", "postgres", "user or password are wrong"),
        ("nobody", PASSWORD, "postgres", "user or password are wrong"),
        (USER, PASSWORD, "no_such", "the server has no such database. Create it with `createdb"),
    ],
)
def test_a_server_that_refuses(postgres_server: Server, user: str, password: str, database: str, said: str) -> None:
    url = postgres_server.url(database, user, password)
    message = refusal(Settings(database_url=SecretStr(url)))
    assert message.startswith(f"cannot use the catalog postgresql://127.0.0.1:{postgres_server.port}/{database}: ")
    assert said in message


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid", "/?host=/no/such/folder"])
def test_a_server_that_is_not_there(host: str) -> None:
    url = f"postgresql://{USER}:{PASSWORD}@{host}/books" if "?" not in host else f"postgresql://{USER}@/books{host[1:]}"
    assert "the server does not answer. Check that it runs" in refusal(Settings(database_url=SecretStr(url)))


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_text("once upon a time " * 1000)
    assert "this file is no SQLite database. Move it away" in refusal(Settings(data_dir=tmp_path))
    assert (tmp_path / "catalog.sqlite").read_text().startswith("once upon a time ")


def test_a_damaged_file(tmp_path: Path) -> None:
    open_catalog(Settings(data_dir=tmp_path)).close()
    path = tmp_path / "catalog.sqlite"
    page = 4096
    path.write_bytes(path.read_bytes()[:page] + b"\xff" * (path.stat().st_size - page))
    assert "its file is damaged. `ragcache db restore FILE` puts" in refusal(Settings(data_dir=tmp_path))


@pytest.mark.parametrize("column", ["text", "pages", "lines"])
@pytest.mark.parametrize("damaged", [b"\0\x11", zlib.compress(b"[1"), zlib.compress(b"\xff")])
def test_a_damaged_value(catalog: Catalog, collection: Collection, column: str, damaged: bytes) -> None:
    made = catalog.documents.replace(collection, *document(["one"]))
    with catalog.database.writing() as connection:
        connection.execute(text(f"UPDATE documents SET {column} = :damaged"), {"damaged": damaged})
    if (column, damaged) == ("text", zlib.compress(b"[1")):
        return  # a text
    for act in (catalog.documents.layout, partial(catalog.documents.page_layout, number=1)):
        with pytest.raises(CatalogError, match=r"its file is damaged\. `ragcache db restore FILE` puts"):
            act(made.document_id)


def test_a_damaged_value_of_what_every_question_reads(catalog: Catalog, collection: Collection) -> None:
    made = catalog.documents.replace(collection, *document(["one"]))
    with catalog.database.writing() as connection:
        connection.execute(text("UPDATE chunks SET heading = '[1'"))
    with pytest.raises(CatalogError, match="its file is damaged"):
        catalog.chunks.found(made.chunk_ids)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_hold_every_text(postgres_server: Server, encoding: str) -> None:
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {encoding} ENCODING '{encoding}' TEMPLATE template0")
    message = refusal(Settings(database_url=SecretStr(postgres_server.url(encoding.lower()))))
    assert f"has the encoding {encoding}, which cannot hold every text" in message


def test_the_encoding_of_a_client_has_no_say(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    for url in (postgres_url, f"{postgres_url}?client_encoding=latin1"):
        with open_catalog(Settings(database_url=SecretStr(url))) as catalog:
            assert catalog.collections.find("→") is None


def test_a_file_of_another_program(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as other:
        other.execute("CREATE TABLE songs (id INTEGER)")
    assert "belongs to another program" in refusal(Settings(data_dir=tmp_path))


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert f"cannot use the catalog {tmp_path}/data/catalog.sqlite: " in refusal(Settings(data_dir=tmp_path / "data"))


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
def test_a_read_only_folder(public_folder: Path, old: bool) -> None:
    if old:
        open_catalog(Settings(data_dir=public_folder)).close()
    public_folder.chmod(0o555)
    with without_rights():
        message = refusal(Settings(data_dir=public_folder))
    assert "it cannot be written. Make the file and its folder writable, or choose another" in message


def test_a_read_only_file(public_folder: Path) -> None:
    with open_catalog(Settings(data_dir=public_folder)) as catalog:
        make_collection(catalog)
    (public_folder / "locks").chmod(0o777)
    (public_folder / "locks" / "catalog.sqlite.lock").chmod(0o666)
    with without_rights():
        assert "cannot be" in refusal(Settings(data_dir=public_folder))


def test_a_folder_that_cannot_be_looked_into(public_folder: Path) -> None:
    database = Database(database_url(Settings(data_dir=public_folder)))
    public_folder.chmod(0)
    with without_rights(), pytest.raises(CatalogError, match="it cannot be written"):
        inspect_schema(database)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    with open_catalog(Settings(data_dir=tmp_path)) as catalog:
        collection = make_collection(catalog)
        catalog.documents.replace(collection, *document(["a", "b"]))
        with catalog.database.writing() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        large = document([f"{number} " + "x" * 1000 for number in range(100)])
        with pytest.raises(CatalogError, match=r"its disk is full\. Free some space"):
            catalog.documents.replace(collection, *large)
        catalog.check_integrity()
        assert catalog.source(collection).position().live == 2
        with catalog.database.writing() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        assert len(catalog.documents.replace(collection, *large).chunk_ids) == 100


def test_a_lock_that_is_held_too_long(settings: Settings, catalog: Catalog, collection: Collection) -> None:
    with open_catalog(settings, busy_seconds=0.05) as impatient, catalog.database.writing() as connection:
        connection.exec_driver_sql("UPDATE collections SET live = live")
        with pytest.raises(CatalogError, match=r"another process keeps it locked\. Try again"):
            impatient.documents.replace(collection, *document(["a"]))
    assert catalog.documents.states(collection) == {}


@pytest.mark.parametrize("code", [code for code in POSTGRESQL if len(code) == 5 and code != "23503"])
def test_what_postgresql_says_is_told(code: str) -> None:
    with pytest.raises(CatalogError, match=r"^cannot use the catalog here: ") as failed, catalog_failures("here"):
        raise psycopg.errors.lookup(code)("in its own words")
    assert str(failed.value).endswith(POSTGRESQL[code])


def test_what_comes_for_a_collection_that_is_gone_is_told_so(catalog: Catalog, collection: Collection) -> None:
    """Between a look at it and the row that belongs to it: the database is not to blame, and no path is told."""
    catalog.collections.delete(collection)
    comes: list[Callable[[], object]] = [
        partial(catalog.jobs.create, collection, {"size": 1}),
        partial(catalog.conversations.create, collection),
        partial(catalog.runs.start, collection),
        partial(catalog.collections.rename, collection, "other"),
        partial(catalog.documents.replace, collection, *document(["a"])),
    ]
    for come in comes:
        with pytest.raises(NotFound, match="somebody has deleted it meanwhile") as missing:
            come()
        assert catalog.where not in str(missing.value)


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "its disk is full"), (errno.EROFS, "cannot be written"), (errno.ELOOP, "OSError: ")],
)
def test_what_the_system_says_is_told(number: int, said: str) -> None:
    with pytest.raises(CatalogError, match=said), catalog_failures("here", OSError):
        raise OSError(number, os.strerror(number))


def test_a_bug_is_no_failure_of_the_database() -> None:
    with pytest.raises(ZeroDivisionError), catalog_failures("here"):
        raise ZeroDivisionError


def test_a_number_that_no_database_can_hold_is_told(catalog: Catalog, collection: Collection) -> None:
    for ask in (catalog.documents.get, catalog.documents.layout, catalog.documents.text):
        with pytest.raises(CatalogError):
            ask(1 << 70)
