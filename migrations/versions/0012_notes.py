"""What a reader should know of an answer, such as that it was cut off, is kept with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nobody knows it of the answers that are there."""
    op.add_column("messages", sa.Column("notes", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("messages", "notes")
