"""What KV is cached stands in the index of the cache folder, which evictions reach; the catalog had a copy of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.drop_table("kv_variants")


def downgrade() -> None:
    """Empty: an older version fills it as it ingests."""
    op.create_table(
        "kv_variants",
        sa.Column("id", ID, nullable=False),
        sa.Column("collection_id", ID, nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("address", sa.String(128), nullable=False),
        sa.Column("fingerprint", sa.String(128), nullable=False),
        sa.Column("nbytes", ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_kv_variants"),
        sa.UniqueConstraint("collection_id", "address", name="uq_kv_variants_collection_id_address"),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name="fk_kv_variants_collection_id_collections",
            ondelete="CASCADE",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_kv_variants_token_hash_collection_id", "kv_variants", ["token_hash", "collection_id"])
