"""What is still to be deleted is written down with what it hangs on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What killed processes have left before, `ragcache cache prune` finds."""
    op.create_table(
        "orphans",
        sa.Column("collection_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("collection_id", "token_hash", name=op.f("pk_orphans")),
    )


def downgrade() -> None:
    op.drop_table("orphans")
