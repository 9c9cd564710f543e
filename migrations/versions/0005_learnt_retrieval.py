"""How much meaning and words count in the search of a collection is learnt from it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Empty: half and half, until an ingest, `ragcache reindex` or `ragcache tune` has learnt it."""
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("collections")}
    if "retrieval" not in there:  # 0004 had it for some hours
        op.add_column("collections", sa.Column("retrieval", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("collections", "retrieval")
