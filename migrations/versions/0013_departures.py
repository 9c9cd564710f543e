"""Machines that share a catalog are told which texts have gone, since each has KV of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What went before is told to nobody: `ragcache cache prune` finds its KV on each machine."""
    op.create_table(
        "departures",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("border", sa.Text(), nullable=False),
        sa.Column("place", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_departures")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("departures")
