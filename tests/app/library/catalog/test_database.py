from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from app.errors import CatalogError
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.chunks import lock, remove_documents
from app.library.catalog.database import BESIDE, Database, database_url
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import CacheTally
from app.settings import Settings
from tests.app.library.catalog.samples import document, make_collection

ROOT = Path(__file__).parents[4]
PATIENCE_S = 30.0
# Tells of each commit after it, until it is killed.
WRITER = """
import sys
from pydantic import SecretStr
from app.library.catalog import open_catalog
from app.settings import Settings
from tests.app.library.catalog.samples import document
with open_catalog(Settings(database_url=SecretStr(sys.argv[1]))) as catalog:
    collection = catalog.collections.get("default")
    for number in range(100_000):
        catalog.documents.replace(collection, *document([str(number), "b", "c"], f"/docs/{number % 7}"))
        print(number, flush=True)
"""


def url_of(text: str) -> Settings:
    return Settings(database_url=SecretStr(text))


def test_the_default_is_a_file_in_the_data_folder(tmp_path: Path) -> None:
    url = database_url(Settings(data_dir=tmp_path / "a?b%c#d"))
    assert Database(url).path == tmp_path / "a?b%c#d" / "catalog.sqlite"


@pytest.mark.parametrize("name", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_name_of_postgresql_means_the_driver_that_is_installed(name: str) -> None:
    url = database_url(url_of(f"{name}://user:secret@host:5433/books"))
    assert url.drivername == "postgresql+psycopg"
    assert Database(url).where == "postgresql://host:5433/books"


def test_a_relative_file_is_where_the_program_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Database(database_url(url_of("sqlite:///x.sqlite"))).path == tmp_path / "x.sqlite"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("postgresql://user:secret@host:port/books", "cannot be parsed: a database URL looks like sqlite:"),
        ("://user:secret@host/books", "cannot be parsed"),
        ("mysql://user:secret@host/books", "driver 'mysql': choose sqlite or postgresql"),
        ("postgresql+psycopg2://user:secret@host/books", "driver 'postgresql"),
        ("postgresql://user:secret@host", "names no database"),
        ("sqlite://", "names no database"),
        ("sqlite:///:memory:", "names no database"),
    ],
)
def test_a_url_that_cannot_be_used(text: str, told: str) -> None:
    with pytest.raises(CatalogError) as failed:
        database_url(url_of(text))
    assert told in str(failed.value)
    assert "secret" not in str(failed.value)


def test_sqlite_keeps_what_it_was_told(tmp_path: Path) -> None:
    with open_catalog(Settings(data_dir=tmp_path)) as catalog, catalog.database.reading() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("foreign_keys", "journal_mode", "synchronous", "busy_timeout")
        }
    assert found == {"foreign_keys": 1, "journal_mode": "wal", "synchronous": 2, "busy_timeout": 30_000}


def test_readers_go_on_while_somebody_writes(catalog: Catalog, collection: Collection) -> None:
    with catalog.database.writing() as connection:
        connection.exec_driver_sql("UPDATE collections SET name = 'changed'")
        assert [one.name for one in catalog.collections.all()] == [collection.name]
    assert [one.name for one in catalog.collections.all()] == ["changed"]


def test_threads_write_one_after_the_other(catalog: Catalog, collection: Collection) -> None:
    def work(worker: int) -> None:
        for number in range(5):
            catalog.documents.replace(collection, *document([f"{worker} {number}", "x"], f"/{worker}/{number % 2}"))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert catalog.source(collection).position().live == 4 * 2 * 2


def test_a_thread_does_not_wait_for_another_for_ever(tmp_path: Path) -> None:
    """A document may be written for half a minute, a collection be deleted for more."""
    with open_catalog(Settings(data_dir=tmp_path), busy_seconds=0.05) as catalog, ThreadPoolExecutor(1) as thread:
        collection = make_collection(catalog)
        with catalog.database.writing():
            waits = thread.submit(catalog.conversations.create, collection)
            with pytest.raises(CatalogError, match=r"is writing much to it\. Try again"):
                waits.result(60)
            thread.submit(catalog.database.shorten_log).result(60)
        assert catalog.conversations.all() == []


def test_what_was_told_survives_a_kill(settings: Settings) -> None:
    with open_catalog(settings) as catalog:
        collection = make_collection(catalog)
        url = catalog.database.url.render_as_string(hide_password=False)
    with subprocess.Popen([sys.executable, "-c", WRITER, url], cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(25)]
        writer.kill()
        told += [int(line) for line in writer.stdout.read().splitlines()]
    assert writer.returncode == -signal.SIGKILL
    with open_catalog(settings) as catalog:
        catalog.check_integrity()
        texts = [text.split("\n")[-1] for _, batch, _ in catalog.source(collection).added(0) for text in batch]
        # The last commit may have been made without being told.
        written = [max(told), max(told) + 1]
        assert texts in [[t for n in range(last - 6, last + 1) for t in (str(n), "b", "c")] for last in written]


def test_a_server_that_was_started_again_is_met_again(postgres_url: str) -> None:
    with open_catalog(url_of(postgres_url)) as catalog:
        catalog.collections.all()
        with psycopg.connect(postgres_url) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                          "AND datname = current_database()")  # fmt: skip
        assert catalog.collections.all() == []


def test_what_belongs_to_a_collection_comes_while_a_document_is_written(postgres_url: str) -> None:
    with open_catalog(url_of(postgres_url), busy_seconds=1.0) as catalog:
        collection = make_collection(catalog)
        made = catalog.documents.replace(collection, *document(["a"]))
        with catalog.database.writing() as connection:
            remove_documents(connection, collection.id, [made.document_id])
            lock(connection, collection)
            assert catalog.conversations.create(collection).collection_id == collection.id
            assert catalog.jobs.create(collection, {"size": 1}).state == "queued"
            with pytest.raises(CatalogError, match="keeps it locked"):
                catalog.collections.rename(collection, "other")
        with catalog.database.writing() as connection:
            lock(connection, collection, whole=True)
            with pytest.raises(CatalogError, match="keeps it locked"):
                catalog.conversations.create(collection)
        catalog.collections.delete(collection)


def test_what_is_not_worth_a_wait_does_not_wait_for_a_document_that_is_written(postgres_url: str) -> None:
    """As pages wait for what is written down before them."""
    with open_catalog(url_of(postgres_url), busy_seconds=600.0) as catalog, ThreadPoolExecutor(1) as pool:
        collection = make_collection(catalog)
        with catalog.database.writing() as connection:
            lock(connection, collection)
            adding = pool.submit(catalog.cache_history.add, {(collection.id, 0): CacheTally(answers=1)})
            with pytest.raises(CatalogError, match="keeps it locked"):
                adding.result(PATIENCE_S)
        catalog.collections.delete(collection)


def test_each_thread_of_a_server_has_a_connection(settings: Settings) -> None:
    """One that waits for a row, or reads for long, holds its own."""
    with open_catalog(settings, busy_seconds=0.1) as catalog, ExitStack() as held:
        for _ in range(settings.serve_concurrent + BESIDE - 16):  # the server of the tests has 97 for all
            held.enter_context(catalog.database.reading())
