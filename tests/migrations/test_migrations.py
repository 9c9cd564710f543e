from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, Integer, MetaData, Table, inspect, make_url

from app.errors import CatalogError
from app.library.catalog import Catalog, schema
from app.library.catalog.database import Database
from app.library.catalog.records import NewMessage
from app.library.catalog.schema import SCRIPTS, VERSION_TABLE, inspect_schema, upgrade
from app.library.catalog.serving_records import CacheTally
from app.library.catalog.tables import METADATA
from app.library.order import Standing
from tests.app.library.catalog.samples import document, make_collection

UNNUMBERED = (
    *("cache_history", "chunk_uses", "context_caches", "conversations", "jobs", "keys"),
    *("orphans", "sentences", "standings"),
)
ROOT = Path(__file__).parents[2]
OPENER = """
import sys
from pydantic import SecretStr
from app.library.catalog import open_catalog
from app.settings import Settings
sys.stdin.readline()
with open_catalog(Settings(database_url=SecretStr(sys.argv[1]))) as catalog:
    print(len(catalog.collections.all()))
"""


def differences(connection: Connection, metadata: MetaData) -> list[object]:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
    return list(compare_metadata(context, metadata))


def backups(database: Database) -> list[Path]:
    assert database.path is not None
    return sorted((database.path.parent / "backups").glob("*"))


def on_sqlite(database: Database) -> bool:
    return database.path is not None


def test_models_and_migrations_agree(database: Database) -> None:
    upgrade(database, 0)
    with database.reading() as connection:
        assert differences(connection, METADATA) == []


def test_a_difference_would_be_seen(database: Database) -> None:
    upgrade(database, 0)
    other = MetaData(naming_convention=METADATA.naming_convention)
    for table in METADATA.tables.values():
        table.to_metadata(other)
    other.tables["chunks"].append_column(Column("colour", Integer))
    Table("forgotten", other, Column("id", Integer, primary_key=True))
    with database.reading() as connection:
        assert len(differences(connection, other)) == 2


def test_ids_are_never_reused_in_the_migrated_tables(database: Database) -> None:
    """Alembic does not compare this, and everything that follows SQL relies on it."""
    upgrade(database, 0)
    if on_sqlite(database):
        query = "SELECT count(*) FROM sqlite_master WHERE instr(sql, 'AUTOINCREMENT')"
    else:
        query = "SELECT count(*) FROM information_schema.columns WHERE starts_with(column_default, 'nextval(')"
    with database.reading() as connection:
        assert connection.exec_driver_sql(query).scalar() == len(METADATA.tables) - len(UNNUMBERED)


def test_every_cascade_is_in_the_migrated_tables(database: Database) -> None:
    upgrade(database, 0)
    with database.reading() as connection:
        keys = [key for table in METADATA.tables for key in inspect(connection).get_foreign_keys(table)]
    assert len(keys) == 13
    assert {key["options"].get("ondelete") for key in keys} == {"CASCADE"}


def test_down_and_up_again(database: Database) -> None:
    upgrade(database, 0)
    config = Config(attributes={"connection": None})
    config.set_main_option("script_location", str(SCRIPTS))
    with database.writing() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        assert set(inspect(connection).get_table_names()) <= {VERSION_TABLE, "sqlite_sequence"}
    assert inspect_schema(database).revision is None
    with database.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    assert inspect_schema(database).current


def test_a_collection_of_before_has_learnt_nothing_yet(database: Database) -> None:
    """And of what it learns an older version knows nothing."""
    upgrade(database, 0)
    collections = Catalog(database).collections
    made = make_collection(Catalog(database))
    collections.set_retrieval(made, {"vector_share": 0.25})
    assert collections.get(made.name).retrieval == {"vector_share": 0.25}
    config = Config(attributes={"connection": None})
    config.set_main_option("script_location", str(SCRIPTS))
    for step in (lambda: command.downgrade(config, "0003"), lambda: command.upgrade(config, "head")):
        with database.writing() as connection:
            config.attributes["connection"] = connection
            step()
    assert collections.all() == [made]
    assert made.retrieval is None


def test_a_conversation_of_before_is_nobodys(database: Database) -> None:
    """And keeps its messages, also when it goes back."""
    config = Config(attributes={"connection": None})
    config.set_main_option("script_location", str(SCRIPTS))

    def bring(step: Callable[[Config, str], None], revision: str) -> None:
        with database.migrating() as connection:
            config.attributes["connection"] = connection
            step(config, revision)

    upgrade(database, 0)
    bring(command.downgrade, "0007")
    catalog = Catalog(database)
    collection = make_collection(catalog)
    with database.writing() as connection:
        moment = "'2026-01-01 00:00:00.000000'"
        values = f"('talk', {collection.id}, 'old', {moment}, {moment})"
        connection.exec_driver_sql(
            f"INSERT INTO conversations (id, collection_id, title, created, updated) VALUES {values}"
        )
    assert upgrade(database, 1) is None or on_sqlite(database)
    catalog.conversations.add("talk", [NewMessage("user", "Who?")], owner="")
    catalog.conversations.create(collection, "new", owner="anna")
    assert [one.id for one in catalog.conversations.all(owner="")] == ["talk"]
    catalog.keys.create("a key", ["read"])
    bring(command.downgrade, "0007")
    assert inspect_schema(database).revision == "0007"
    upgrade(database, 0)
    assert {one.title: one.owner for one in catalog.conversations.all()} == {"old": "", "new": ""}
    assert [one.content for one in catalog.conversations.messages("talk")] == ["Who?"]
    assert not catalog.keys.any()


def test_there_is_one_newest_revision(database: Database) -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    scripts = ScriptDirectory.from_config(config)
    (newest,) = scripts.get_heads()
    assert newest == inspect_schema(database).newest
    assert {one.revision: one.down_revision for one in scripts.walk_revisions()} == schema._revisions(SCRIPTS)


def test_looking_creates_nothing(database: Database) -> None:
    found = inspect_schema(database)
    assert (found.revision, found.current) == (None, False)
    assert not on_sqlite(database) or not Path(found.database).exists()


def test_a_new_schema_keeps_the_data_and_a_copy_of_the_old_file(database: Database, newer: Path) -> None:
    assert upgrade(database, 3) is None, "there is nothing to copy"
    collection = make_collection(Catalog(database))
    assert upgrade(database, 3) is None, "there is nothing to upgrade"
    backup = upgrade(database, 3, newer)
    assert inspect_schema(database, newer).revision == "9999"
    assert Catalog(database).collections.all() == [collection]
    if not on_sqlite(database):
        assert backup is None
        return
    assert backup is not None
    assert backups(database) == [backup]
    with closing(sqlite3.connect(backup)) as copy:
        assert copy.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall() == [("0013",)]
        assert copy.execute("SELECT uid FROM collections").fetchall() == [(collection.uid,)]


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_so_many_copies_are_kept(tmp_path: Path, broken: Path, keep: int) -> None:
    database = Database(make_url(f"sqlite:///{tmp_path}/catalog.sqlite"))
    upgrade(database, keep)
    made = []
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            upgrade(database, keep, broken)
        made += [path for path in backups(database) if path not in made]
    assert backups(database) == made[len(made) - keep :]
    assert len(backups(database)) == keep
    database.close()


def test_a_migration_that_fails_leaves_the_old_schema(database: Database, newer: Path, broken: Path) -> None:
    upgrade(database, 0)
    collection = make_collection(Catalog(database))
    with pytest.raises(ZeroDivisionError):
        upgrade(database, 0, broken)
    with database.reading() as connection:
        assert "colour" not in {column["name"] for column in inspect(connection).get_columns("collections")}
    assert inspect_schema(database).current
    upgrade(database, 0, newer)
    assert Catalog(database).collections.all() == [collection]


def filled(database: Database) -> Catalog:
    """With rows in all tables, and the newest chunks and documents deleted."""
    catalog = Catalog(database)
    collection = make_collection(catalog)
    for number in range(4):
        record, chunks = document([f"{number}a", f"{number}b"], source=f"/docs/{number}.txt")
        catalog.documents.replace(collection, record, chunks, standing=Standing(float(number), (1,) if number else ()))
    catalog.documents.delete(collection, [4])
    talk = catalog.conversations.create(collection, "a talk")
    catalog.conversations.add(talk.id, [NewMessage("user", "Who?")])
    catalog.runs.start(collection)
    catalog.orphans.settle(collection, [*catalog.orphans.left()][:1])
    catalog.keys.create("a key", ["read"])
    catalog.jobs.create(collection, {"files": ["a.pdf"]})
    catalog.context_caches.create("", border="", model="f", chunks=[[1, 2]], nbytes=8)
    catalog.cache_history.add({(collection.id, 60): CacheTally(answers=1)}, {(collection.id, 1): (1, 9)})
    (found,) = catalog.collections.all()[:1]
    lacking = catalog.sentences.lacking(found, 0, 9)
    catalog.sentences.add(found, [(chunk, b"") for chunk, _ in lacking])
    return catalog


def rows(database: Database) -> dict[str, list[dict[str, object]]]:
    """What is in all tables of ours; of each row what was there before the migrations of these tests."""
    with database.reading() as connection:
        return {
            name: [dict(row._mapping) for row in connection.execute(table.select().order_by(*table.primary_key))]
            for name, table in METADATA.tables.items()
        }


def test_a_table_that_is_made_anew_loses_nothing(database: Database, remade: Path) -> None:
    """SQLite would empty what hangs on it, and give out the keys of deleted rows again."""
    upgrade(database, 0)
    catalog = filled(database)
    before = rows(database)
    assert all(before.values()), "a table without rows proves nothing"
    upgrade(database, 0, remade)
    assert rows(database) == before
    collection = catalog.collections.get("default")
    replaced = catalog.documents.replace(collection, *document(["new"]))
    assert (replaced.document_id, replaced.chunk_ids) == (5, (9,))
    catalog.check_integrity()
    catalog.collections.delete(collection)
    left = {name for name, kept in rows(database).items() if kept}
    assert left == {"keys", "context_caches", "departures", "orphans"}, "foreign keys are on again, for each connection"


def test_a_script_that_loses_rows_is_taken_back(tmp_path: Path, careless: Path) -> None:
    database = Database(make_url(f"sqlite:///{tmp_path}/catalog.sqlite"))
    upgrade(database, 0)
    filled(database)
    before = rows(database)
    with pytest.raises(CatalogError, match="would lose data: documents has 0 of 3 rows"):
        upgrade(database, 0, careless)
    assert rows(database) == before
    assert inspect_schema(database).current
    database.close()


def test_a_database_of_a_newer_version_is_refused(database: Database, newer: Path) -> None:
    upgrade(database, 0, newer)
    for act in (lambda: upgrade(database, 3), lambda: inspect_schema(database)):
        with pytest.raises(CatalogError, match=r"written by a newer version of ragcache \(schema 9999\)"):
            act()
    assert not on_sqlite(database) or backups(database) == []


@pytest.mark.slow
def test_many_processes_open_a_new_catalog_at_once(database: Database) -> None:
    url = database.url.render_as_string(hide_password=False)
    command_line = [sys.executable, "-W", "error", "-c", OPENER, url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    openers = [subprocess.Popen(command_line, cwd=ROOT, **pipes) for _ in range(3)]
    said = []
    for opener in openers:
        opener.stdin.write("go\n")
        opener.stdin.flush()
    for opener in openers:
        said.append(opener.communicate(timeout=60))
    assert said == [("0\n", "")] * 3
    assert inspect_schema(database).current
