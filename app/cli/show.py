"""`ragcache show`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.flags import CacheDir, DataDir, Json, configure
from app.cli.output import fields, plain, print_json, table
from app.client.amounts import count, size
from app.compose import opened
from app.library.catalog.records import StoredChunk
from app.library.inspection import Shown, show_chunk, show_document
from app.library.kv import StoredVariant
from ragcache.store.findings import DISK

_NUMBERS = ("id", "#", "characters", "tokens", "KV")


def show(
    document: Annotated[str | None, typer.Argument(help="Its id or its path.", show_default=False)] = None,
    chunk: Annotated[int | None, typer.Option("--chunk", help="Show this chunk instead.", metavar="ID")] = None,
    chunks: Annotated[bool, typer.Option("--chunks", help="With the texts of all chunks.")] = False,
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="Where to look; in all by default.")
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
    cache_dir: CacheDir = None,
) -> None:
    """Show a document: what it is, its chunks, and which of them have KV."""
    if (document is None) == (chunk is None):
        raise typer.BadParameter("name a document by its id or path, or a chunk by --chunk ID")
    settings = configure(data_dir=data_dir, cache_dir=cache_dir)
    with opened(settings, looking=True) as (library, models):
        if document is None:
            assert chunk is not None
            shown = show_chunk(library, chunk, models)
        else:
            shown = show_document(library, document, collection, models)
    texts = chunks or chunk is not None
    if as_json:
        print_json(_as_json(shown, texts))
    else:
        _tell(shown, texts)


def _as_json(shown: Shown, texts: bool) -> dict[str, Any]:
    document = shown.document
    return {
        "collection": shown.collection.name,
        **fields(document, "id", "source", "title", "kind", "state", "error", "attempts", "content_hash"),
        "way": shown.way,
        "bytes": document.size,
        "characters": shown.length,
        "created": document.created.isoformat(),
        "updated": document.updated.isoformat(),
        "pages": [vars(page) for page in shown.pages],
        "chunks": [_chunk_as_json(shown, chunk, texts) for chunk in shown.chunks],
    }


def _chunk_as_json(shown: Shown, chunk: StoredChunk, texts: bool) -> dict[str, Any]:
    return {
        **fields(chunk, "id", "ordinal", "start", "end", "tokens", "token_hash", "heading"),
        "pages": [{"number": number, "label": label} for number, label in chunk.pages],
        **({"text": chunk.text} if texts else {}),
        "kv": [
            {
                "tier": DISK,
                "bytes": info.nbytes,
                "address": info.key.digest,
                "context": [{"token_hash": one, "ordinal": shown.hashes.get(one)} for one in info.key.context],
            }
            for info in shown.variants(chunk)
        ],
    }


def _tell(shown: Shown, texts: bool) -> None:
    document = shown.document
    print(f"{plain(document.source)}\n")
    facts = [
        ("document", f"{document.id} in {shown.collection.name}"),
        ("title", document.title),
        ("kind", document.kind),
        ("cut", shown.way),
        ("state", document.state),
        ("reason", f"{document.error} ({count(document.attempts, 'try', 'tries')})" if document.error else ""),
        ("size", f"{size(document.size)}, {count(shown.length, 'character')}"),
        ("pages", _pages(shown)),
        ("updated", f"{document.updated:%Y-%m-%d %H:%M:%S %Z}"),
    ]
    for name, value in facts:
        if value:
            print(f"{name:<9} {plain(value)}")
    if not shown.chunks:
        return
    titles = ("id", "#", "characters", "tokens", "pages", "KV", "heading")
    print(f"\n{table(titles, [_row(shown, chunk) for chunk in shown.chunks], right=_NUMBERS)}")
    for chunk in shown.chunks if texts else ():
        print(f"\n--- chunk {chunk.id}\n{_lines(chunk.text)}")
        for info in shown.variants(chunk):
            print(f"    KV: {_variant(shown, info)}")


def _pages(shown: Shown) -> str:
    if not shown.pages:
        return ""
    return count(len(shown.pages), shown.pages[0].label)


def _row(shown: Shown, chunk: StoredChunk) -> tuple[object, ...]:
    pages = ", ".join(f"{label} {number}" for number, label in chunk.pages)
    variants = len(shown.variants(chunk)) or "-"
    where = f"{chunk.start:,}-{chunk.end:,}"
    return (chunk.id, chunk.ordinal, where, f"{chunk.tokens:,}", pages, variants, " / ".join(chunk.heading))


def _variant(shown: Shown, info: StoredVariant) -> str:
    if not info.key.context:
        return f"{DISK}, {size(info.nbytes)}, right behind the system prompt"
    known = [shown.hashes.get(one) for one in info.key.context]
    names = ", ".join("of another document" if one is None else f"#{one}" for one in known)
    return f"{DISK}, {size(info.nbytes)}, behind {count(len(known), 'chunk')}: {names}"


def _lines(text: str) -> str:
    return "\n".join(plain(line) for line in text.split("\n"))
