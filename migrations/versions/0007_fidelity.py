"""How far answers over a collection's KV are from a full recompute is measured on it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Empty: as the bundled model's are, until an ingest or `ragcache tune --answers` has measured it."""
    op.add_column("collections", sa.Column("fidelity", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("collections", "fidelity")
