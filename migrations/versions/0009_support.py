"""How far the passages of an answer say what its sentences say is kept with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nobody knows it of the answers that are there."""
    op.add_column("messages", sa.Column("support", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("messages", "support")
