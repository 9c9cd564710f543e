"""Documents have a place in the order of their collection, and are computed behind those near them.

Those that are there have none until their KV is computed anew; in prompts they stand behind the others, as they came.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def belongs_to(table: str, column: str, parent: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{parent}.id"], name=f"fk_{table}_{column}", ondelete="CASCADE")


def upgrade() -> None:
    # A table of its own: columns behind the texts of documents would be read through these.
    op.create_table(
        "standings",
        sa.Column("document_id", ID, nullable=False),
        sa.Column("collection_id", ID, nullable=False),
        sa.Column("place", sa.Float(53), nullable=False),
        sa.Column("behind", sa.Text(), nullable=False),
        sa.Column("opening", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("document_id", name=op.f("pk_standings")),
        belongs_to("standings", "document_id", "documents"),
        belongs_to("standings", "collection_id", "collections"),
    )
    op.create_index(op.f("ix_standings_collection_id_place"), "standings", ["collection_id", "place"])


def downgrade() -> None:
    op.drop_table("standings")
