"""Who works on a collection keeps all others out, on whatever machine; with PostgreSQL they share nothing but it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue

import psycopg
import pytest
from pydantic import SecretStr

from app.errors import CatalogError, CollectionBusy, NotFound
from app.library.catalog import Catalog, open_catalog
from app.library.catalog.records import Collection
from app.settings import Settings
from tests.app.library.catalog.samples import document, make_collection
from tests.pooler import OTHER, pooled
from tests.postgres import Server

ROOT = Path(__file__).parents[4]
HOLDER = """
import sys
from pathlib import Path
from pydantic import SecretStr
from app.library.catalog import open_catalog
from app.settings import Settings
url, data, ingests = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
with open_catalog(Settings(database_url=SecretStr(url), data_dir=data)) as catalog:
    collection = catalog.collections.get("default")
    with catalog.alone(collection):
        run = catalog.runs.start(collection) if ingests else None
        print("held", flush=True)
        sys.stdin.readline()
        if run:
            catalog.runs.finish(run, "done", {})
"""


@contextmanager
def another_machine(settings: Settings, tmp_path: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of the collection, with a data folder of its own."""
    with open_catalog(settings) as catalog:
        url = catalog.database.url.render_as_string(hide_password=False)
    command = [sys.executable, "-W", "error", "-c", HOLDER, url, str(tmp_path / "elsewhere"), *flags]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "held\n"
            yield other
        finally:
            other.kill()


def test_another_machine_is_kept_out(
    settings: Settings, catalog: Catalog, collection: Collection, tmp_path: Path
) -> None:
    free = make_collection(catalog, "free")
    with another_machine(settings, tmp_path) as other:
        told = "is working on collection 'default': try again when it is done"
        with pytest.raises(CollectionBusy, match=told) as busy, catalog.alone(free, collection):
            pytest.fail("the lock is held")
        assert catalog.database.path or f"process {other.pid} on " in str(busy.value)
        with catalog.alone(free):
            pass
        other.communicate("\n", timeout=60)
    with catalog.alone(free, collection):
        pass


def test_a_lock_ends_with_its_process(
    settings: Settings, catalog: Catalog, collection: Collection, tmp_path: Path
) -> None:
    waits, told = threading.Event(), []

    def waiting(text: str) -> None:
        told.append(text)
        waits.set()

    with another_machine(settings, tmp_path) as other:

        def kill() -> None:
            waits.wait(60)
            other.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        with catalog.alone(collection, waiting=waiting):
            assert len(told) == 1 and told[0].endswith("is working on collection 'default': waiting for it")
        killer.join()


def test_the_lock_is_that_of_whoever_has_the_name_by_then(
    settings: Settings, catalog: Catalog, collection: Collection
) -> None:
    """While one waits, the collection is deleted, and another process works on a new one of the same name."""
    waits: Queue[str] = Queue()
    with ExitStack() as first, ExitStack() as second, ThreadPoolExecutor(1) as thread:
        other, waiter = (first.enter_context(open_catalog(settings)) for _ in range(2))

        def wait() -> int:
            with waiter.alone_with("default", waits.put) as found:
                return found.id

        with other.alone(collection):
            future = thread.submit(wait)
            waits.get(timeout=60)
            other.collections.delete(collection)
            new = make_collection(catalog)
            second.enter_context(catalog.alone(new))
        waits.get(timeout=60)
        assert not future.done()
        second.close()
        assert future.result(60) == new.id != collection.id


def test_the_lock_of_a_collection_is_its_own_whatever_it_is_called(catalog: Catalog, collection: Collection) -> None:
    catalog.collections.rename(collection, "renamed")
    make_collection(catalog)
    with catalog.alone_as(collection) as found:
        assert (found.id, found.name) == (collection.id, "renamed")
    catalog.collections.delete(collection)
    with pytest.raises(NotFound) as missing, catalog.alone_as(collection):
        pass
    assert "default" not in str(missing.value), "nor are others named"


def test_only_a_run_that_holds_no_lock_was_interrupted(
    settings: Settings, catalog: Catalog, collection: Collection, tmp_path: Path
) -> None:
    with another_machine(settings, tmp_path, "ingests") as other:
        with pytest.raises(CollectionBusy), catalog.alone(collection):
            catalog.runs.start(collection)
        assert [run.state for run in catalog.runs.newest(collection)] == ["running"]
        other.communicate("\n", timeout=60)
    assert [run.state for run in catalog.runs.newest(collection)] == ["done"]
    with another_machine(settings, tmp_path, "ingests") as other:
        other.kill()
        other.wait()
        with catalog.alone(collection, waiting=lambda _: None):
            catalog.runs.start(collection)
    assert [run.state for run in catalog.runs.newest(collection)] == ["running", "interrupted", "done"]


def test_an_ingest_beside_an_sqlite_file_is_named(catalog: Catalog, collection: Collection) -> None:
    if catalog.database.path is None:
        return  # the server names whoever holds the lock
    with catalog.alone(collection):
        catalog.runs.start(collection)
        told = rf"^another ingest \(process {os.getpid()}, since "
        with pytest.raises(CollectionBusy, match=told), catalog.alone(collection):
            pytest.fail("the lock is held")


def test_many_locks_take_one_connection_and_none_of_the_pool(catalog: Catalog, collection: Collection) -> None:
    """Else they would leave nobody one to work with."""
    others = [make_collection(catalog, f"c{number}") for number in range(20)]
    with catalog.alone(*others, collection):
        assert len(catalog.collections.all()) == 21
        if catalog.database.path is None:
            query = "SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, 'ragcache, process ')"
            with catalog.database.reading() as connection:
                assert connection.exec_driver_sql(query).scalar_one() == 1
        for busy in (others[0], others[19], collection):
            with pytest.raises(CollectionBusy), catalog.alone(busy):
                pytest.fail("the lock is held")


def test_more_locks_than_open_files_are_made_room_for(catalog: Catalog, collection: Collection) -> None:
    others = [make_collection(catalog, f"c{number}") for number in range(60)]
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) + 30, most))
    try:
        with catalog.alone(*others, collection):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


@pytest.fixture
def strict(postgres_server: Server, tmp_path: Path) -> Iterator[Settings]:
    """A database of a test's own, with limits for whatever takes long, or does nothing for so long."""
    url = postgres_server.create("strict")
    yield Settings(database_url=SecretStr(url), data_dir=tmp_path / "data")
    postgres_server.drop("strict")


def test_the_servers_limits_end_no_lock(strict: Settings, postgres_server: Server) -> None:
    with (
        psycopg.connect(postgres_server.url("postgres"), autocommit=True) as watching,
        open_catalog(strict) as catalog,
        open_catalog(strict) as other,
    ):
        collection = make_collection(catalog)
        for limit in ("idle_session_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
            watching.execute(f"ALTER DATABASE strict SET {limit} = '3s'")  # a slow machine's own steps take less
        waits, done = threading.Event(), threading.Event()

        def wait() -> None:
            with other.alone(collection, waiting=lambda _: waits.set()):
                done.set()

        waiter = threading.Thread(target=wait)
        with catalog.alone(collection):
            waiter.start()
            assert waits.wait(60)
            watching.execute("SELECT pg_sleep(7)")
            assert not done.is_set()
            catalog.documents.replace(collection, *document(["one"], "a"))
        waiter.join()
        assert done.is_set()


def test_a_lock_that_was_lost_lets_nothing_be_written(
    postgres_url: str, settings: Settings, catalog: Catalog, collection: Collection
) -> None:
    """A server that is started again knows nothing of it."""
    if settings.database_url is None:
        return
    with catalog.alone(collection):
        catalog.documents.replace(collection, *document(["one"], "a"))
        with psycopg.connect(postgres_url, autocommit=True) as watching:
            watching.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                "WHERE starts_with(application_name, 'ragcache, process ')"
            )
        with open_catalog(settings) as other, other.alone(collection):
            with pytest.raises(CatalogError, match="has ended the session that held the lock of collection 'default'"):
                catalog.documents.replace(collection, *document(["two"], "a"))
            other.documents.replace(collection, *document(["three"], "b"))
        with pytest.raises(CatalogError, match="has ended the session"):
            catalog.documents.delete(collection, [1])
    catalog.documents.delete(collection, [1])
    assert set(catalog.documents.states(collection)) == {"b"}


def test_a_lock_is_held_through_a_pooler_too(postgres_server: Server, tmp_path: Path) -> None:
    direct = postgres_server.create("pooled")
    with pooled(postgres_server.port) as port:
        url = f"{direct.replace(f':{postgres_server.port}/', f':{port}/')}?sslmode=disable&gssencmode=disable"
        with psycopg.connect(url) as connection:
            assert connection.info.backend_pid == OTHER
        with open_catalog(Settings(database_url=SecretStr(url), data_dir=tmp_path / "data")) as catalog:
            collection = make_collection(catalog)
            with catalog.alone(collection):
                catalog.documents.replace(collection, *document(["one"], "a"))
            assert set(catalog.documents.states(collection)) == {"a"}
    postgres_server.drop("pooled")


def test_the_server_may_limit_how_long_others_wait(postgres_url: str, settings: Settings, tmp_path: Path) -> None:
    """A limit for changes must not end the wait for a lock."""
    if settings.database_url is None:
        return
    with open_catalog(settings, busy_seconds=0.2) as catalog:
        collection, held, going = make_collection(catalog), threading.Event(), threading.Event()

        def hold() -> None:
            with catalog.alone(collection):
                held.set()
                going.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(60)
        with psycopg.connect(postgres_url) as watching:

            def let_go() -> None:
                """Once more than the limit has gone by on the server."""
                watching.execute("SELECT pg_sleep(0.5)")
                going.set()

            done = threading.Thread(target=let_go)
            with catalog.alone(collection, waiting=lambda _: done.start()):
                assert going.is_set()
            done.join()
        holder.join()
