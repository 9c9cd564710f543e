"""How Alembic reaches the database: over the connection it is handed, or else over the settings."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from app.library.catalog.database import Database, database_url
from app.library.catalog.schema import VERSION_TABLE
from app.library.catalog.tables import METADATA
from app.settings import load_settings


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        version_table=VERSION_TABLE,
        # SQLite's own default is off; ours opens its transactions itself, and takes back a half-made schema.
        transactional_ddl=True,
        # SQLite can change little of a table in place; `Database.migrating` keeps what hangs on one that is made anew.
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    migrate(given)
else:
    database = Database(database_url(load_settings()))
    with database.migrating() as connection:
        migrate(connection)
    database.close()
