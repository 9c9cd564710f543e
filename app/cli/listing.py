"""How collections and documents are listed, each as JSON has it: a server tells less of them than this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.cli.output import plain, print_json, table
from app.client.amounts import count, size

Record = Mapping[str, Any]
AMOUNTS = ("documents", "failed", "chunks", "tokens")


def show_collections(found: Sequence[Record], as_json: bool) -> None:
    if as_json:
        print_json({"collections": found})
        return
    if not found:
        print("no collections yet: `ragcache ingest PATH` makes one")
        return
    own = "kv_bytes" in found[0]
    titles = ("collection", *AMOUNTS, "size", *(("KV", "embedder") if own else ()))
    rows = [
        (
            one["name"],
            *(f"{one[name]:,}" for name in AMOUNTS),
            size(one["nbytes"]),
            *((size(one["kv_bytes"]), one["embedder"]) if own else ()),
        )
        for one in found
    ]
    print(table(titles, rows, right=(*AMOUNTS, "size", "KV")))


def show_documents(documents: Sequence[Record], collection: str, failed: bool, as_json: bool) -> None:
    """`failed`: they are those that could not be read."""
    if as_json:
        print_json({"collection": collection, "documents": documents})
    elif not documents:
        print(f"no {'failed ' if failed else ''}documents in {plain(collection)}")
    elif failed:
        tries = ("attempts",) if "attempts" in documents[0] else ()
        rows = [(one["id"], *(one[name] for name in tries), one["source"], one["error"] or "") for one in documents]
        print(table(("id", *("tries" for _ in tries), "source", "reason"), rows, right=("id", "tries")))
    else:
        _show_all(documents, collection)


def _show_all(documents: Sequence[Record], collection: str) -> None:
    titles = ("id", "state", "chunks", "tokens", "pages", "source")
    rows = [
        (one["id"], one["state"], f"{one['chunks']:,}", f"{one['tokens']:,}", one["pages"] or "", one["source"])
        for one in documents
    ]
    print(table(titles, rows, right=("id", "chunks", "tokens", "pages")))
    bad = sum(one["state"] == "failed" for one in documents)
    more = f", {bad:,} of them failed: `ragcache ls -c {plain(collection)} --failed` tells why" if bad else ""
    print(f"\n{count(len(documents), 'document')}{more}")
