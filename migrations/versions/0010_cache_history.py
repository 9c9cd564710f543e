"""A server remembers what its cache was good for: over time, and by chunk."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COUNTS = ("answers", "reused", "repaired", "computed", "ram", "disk", "bucket", "prefix", "estimated", "compared")
SECONDS = ("first_s", "estimated_s", "compared_s", "captured_s")


def upgrade() -> None:
    """Of what was before nothing is known."""
    op.create_table(
        "cache_history",
        sa.Column("collection_id", ID, nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("start", ID, nullable=False),
        *(sa.Column(name, ID, nullable=False) for name in (*COUNTS, "captured")),
        *(sa.Column(name, sa.Float(53), nullable=False) for name in SECONDS),
        sa.PrimaryKeyConstraint("collection_id", "step", "start", name=op.f("pk_cache_history")),
        sa.ForeignKeyConstraint(
            ["collection_id"], ["collections.id"], name=op.f("fk_cache_history_collection_id"), ondelete="CASCADE"
        ),
    )
    op.create_table(
        "chunk_uses",
        sa.Column("chunk_id", ID, nullable=False),
        sa.Column("uses", ID, nullable=False),
        sa.Column("reused", ID, nullable=False),
        sa.Column("used", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("chunk_id", name=op.f("pk_chunk_uses")),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name=op.f("fk_chunk_uses_chunk_id"), ondelete="CASCADE"),
    )
    op.create_index("ix_chunk_uses_uses", "chunk_uses", ["uses"])


def downgrade() -> None:
    for table in ("chunk_uses", "cache_history"):
        op.drop_table(table)
