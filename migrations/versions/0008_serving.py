"""A server has keys, jobs and context caches; a conversation belongs to the key that began it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
INDEXES = (
    ("conversations", "owner"),
    ("jobs", "collection_id"),
    ("jobs", "owner"),
    ("jobs", "state", "created"),
    ("context_caches", "owner"),
    ("context_caches", "expires"),
)


def upgrade() -> None:
    """Conversations of before are nobody's, as those of the command line will be."""
    op.add_column("conversations", sa.Column("owner", sa.String(32), nullable=False, server_default=""))
    create_keys()
    create_jobs()
    create_context_caches()
    for table, *columns in INDEXES:
        op.create_index(op.f("_".join(["ix", table, *columns])), table, columns)


def downgrade() -> None:
    for table in ("context_caches", "jobs", "keys"):
        op.drop_table(table)
    op.drop_index("ix_conversations_owner", "conversations")
    op.drop_column("conversations", "owner")


def create_keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("collections", sa.Text()),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("created", MOMENT, nullable=False),
        sa.Column("last_used", MOMENT),
        sa.Column("revoked", MOMENT),
        sa.Column("expires", MOMENT),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
    )


def create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("collection_id", ID, nullable=False),
        sa.Column("owner", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("cancelling", sa.Boolean(), nullable=False),
        sa.Column("process", sa.String(200)),
        sa.Column("lease", sa.String(32)),
        sa.Column("leased_until", MOMENT),
        sa.Column("created", MOMENT, nullable=False),
        sa.Column("started", MOMENT),
        sa.Column("finished", MOMENT),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.ForeignKeyConstraint(
            ["collection_id"], ["collections.id"], name=op.f("fk_jobs_collection_id"), ondelete="CASCADE"
        ),
    )


def create_context_caches() -> None:
    op.create_table(
        "context_caches",
        sa.Column("id", sa.String(48), nullable=False),
        sa.Column("owner", sa.String(32), nullable=False),
        sa.Column("border", sa.Text(), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("created", MOMENT, nullable=False),
        sa.Column("used", MOMENT, nullable=False),
        sa.Column("expires", MOMENT),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("nbytes", ID, nullable=False),
        sa.Column("chunks", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_context_caches")),
    )
