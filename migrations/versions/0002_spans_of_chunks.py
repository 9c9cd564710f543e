"""Where the pages and lines of a chunk start and end, so that a quote is placed without reading its whole document."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Of chunks that are there nobody knows it: their documents are asked, as before.
    op.add_column("chunks", sa.Column("spans", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("chunks", "spans")
