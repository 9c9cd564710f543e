"""A question is also compared with the sentences of a chunk, whose vectors stand beside it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Empty: chunks of before are found by their own vectors until `ragcache reindex` adds these."""
    op.create_table(
        "sentences",
        sa.Column("chunk_id", ID, nullable=False, autoincrement=False),
        sa.Column("vectors", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("chunk_id", name="pk_sentences"),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name="fk_sentences_chunk_id_chunks", ondelete="CASCADE"),
    )


def downgrade() -> None:
    op.drop_table("sentences")
