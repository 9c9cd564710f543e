"""Collections, documents, chunks, what the indexes follow, KV variants, conversations and ingest runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite counts only rows whose key is declared INTEGER.
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
TABLES = (
    "collections",
    "documents",
    "chunks",
    "retirements",
    "kv_variants",
    "conversations",
    "messages",
    "ingest_runs",
)


def upgrade() -> None:
    create_collections()
    create_documents()
    create_chunks()
    create_retirements()
    create_kv_variants()
    create_conversations()
    create_messages()
    create_ingest_runs()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def belongs_to(table: str, column: str, parent: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{parent}.id"], name=f"fk_{table}_{column}", ondelete="CASCADE")


def create_collections() -> None:
    op.create_table(
        "collections",
        sa.Column("id", ID, nullable=False),
        sa.Column("uid", sa.String(32), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("embedder", sa.Text(), nullable=False),
        sa.Column("embedder_fingerprint", sa.String(128), nullable=False),
        sa.Column("dimension", sa.Integer(), nullable=False),
        sa.Column("engine_fingerprint", sa.String(128)),
        sa.Column("system_hash", sa.String(128)),
        sa.Column("splitter", sa.String(64), nullable=False),
        sa.Column("splitter_settings", sa.Text(), nullable=False),
        sa.Column("high", ID, nullable=False),
        sa.Column("retired", ID, nullable=False),
        sa.Column("live", ID, nullable=False),
        sa.Column("created", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_collections"),
        sa.UniqueConstraint("uid", name="uq_collections_uid"),
        sa.UniqueConstraint("name", name="uq_collections_name"),
        sqlite_autoincrement=True,
    )


def create_documents() -> None:
    op.create_table(
        "documents",
        sa.Column("id", ID, nullable=False),
        sa.Column("collection_id", ID, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("source_key", sa.String(64), nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("size", ID, nullable=False),
        sa.Column("mtime_ns", ID, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created", MOMENT, nullable=False),
        sa.Column("updated", MOMENT, nullable=False),
        sa.Column("text", sa.LargeBinary(), nullable=False),
        sa.Column("pages", sa.LargeBinary(), nullable=False),
        sa.Column("lines", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_documents"),
        sa.UniqueConstraint("collection_id", "source_key", name="uq_documents_collection_id_source_key"),
        belongs_to("documents", "collection_id", "collections"),
        sqlite_autoincrement=True,
    )


def create_chunks() -> None:
    op.create_table(
        "chunks",
        sa.Column("id", ID, nullable=False),
        sa.Column("document_id", ID, nullable=False),
        sa.Column("collection_id", ID, nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("end", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("heading", sa.Text(), nullable=False),
        sa.Column("pages", sa.Text(), nullable=False),
        sa.Column("boxes", sa.Text(), nullable=False),
        sa.Column("embedding", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_chunks"),
        sa.UniqueConstraint("document_id", "ordinal", name="uq_chunks_document_id_ordinal"),
        belongs_to("chunks", "document_id", "documents"),
        belongs_to("chunks", "collection_id", "collections"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_chunks_collection_id_id", "chunks", ["collection_id", "id"])
    op.create_index("ix_chunks_token_hash_collection_id", "chunks", ["token_hash", "collection_id"])


def create_retirements() -> None:
    op.create_table(
        "retirements",
        sa.Column("number", ID, nullable=False),
        sa.Column("collection_id", ID, nullable=False),
        sa.Column("chunk_id", ID, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_retirements"),
        belongs_to("retirements", "collection_id", "collections"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_retirements_collection_id_number", "retirements", ["collection_id", "number"])


def create_kv_variants() -> None:
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
        belongs_to("kv_variants", "collection_id", "collections"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_kv_variants_token_hash_collection_id", "kv_variants", ["token_hash", "collection_id"])


def create_conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("collection_id", ID, nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("created", MOMENT, nullable=False),
        sa.Column("updated", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
        belongs_to("conversations", "collection_id", "collections"),
    )
    op.create_index("ix_conversations_collection_id", "conversations", ["collection_id"])


def create_messages() -> None:
    op.create_table(
        "messages",
        sa.Column("id", ID, nullable=False),
        sa.Column("conversation_id", sa.String(32), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("citations", sa.Text(), nullable=False),
        sa.Column("report", sa.Text()),
        sa.Column("created", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        belongs_to("messages", "conversation_id", "conversations"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_messages_conversation_id", "messages", ["conversation_id"])


def create_ingest_runs() -> None:
    op.create_table(
        "ingest_runs",
        sa.Column("id", ID, nullable=False),
        sa.Column("collection_id", ID, nullable=False),
        sa.Column("started", MOMENT, nullable=False),
        sa.Column("finished", MOMENT),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ingest_runs"),
        belongs_to("ingest_runs", "collection_id", "collections"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_ingest_runs_collection_id", "ingest_runs", ["collection_id"])
