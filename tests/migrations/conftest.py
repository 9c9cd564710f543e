from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from app.library.catalog.database import Database
from app.library.catalog.schema import SCRIPTS
from tests.postgres import Server

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "0013"
branch_labels = depends_on = None


def upgrade():
    op.add_column("collections", sa.Column("colour", sa.Text()))
    {more}
"""

REMADE = """
    how = "always" if op.get_context().dialect.name == "sqlite" else "never"
    for name in ("collections", "documents", "chunks", "conversations"):
        with op.batch_alter_table(name, recreate=how, table_kwargs={"sqlite_autoincrement": True}) as table:
            table.add_column(sa.Column("taste", sa.Text()))
"""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty one, of either kind."""
    if request.param == "sqlite":
        database = Database(make_url(f"sqlite:///{tmp_path}/data/catalog.sqlite"))
        yield database
        database.close()
        return
    server: Server = request.getfixturevalue("postgres_server")
    url = make_url(server.create("migrations"))
    database = Database(url.set(drivername="postgresql+psycopg"))
    yield database
    database.close()
    server.drop("migrations")


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The scripts of a version to come: ours and one more."""
    return with_next(tmp_path / "newer", "pass")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The same, but it fails when it has done half of its work."""
    return with_next(tmp_path / "broken", "raise ZeroDivisionError")


@pytest.fixture
def remade(tmp_path: Path) -> Path:
    """A script that makes tables anew, as a batch migration does in SQLite."""
    return with_next(tmp_path / "remade", REMADE)


@pytest.fixture
def careless(tmp_path: Path) -> Path:
    """A script that deletes what it should not."""
    return with_next(tmp_path / "careless", "op.execute('DELETE FROM documents')")


def with_next(folder: Path, more: str) -> Path:
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "9999_colour.py").write_text(NEXT.format(more=more))
    return folder
