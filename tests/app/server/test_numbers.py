"""Numbers in addresses, of every route that has one: what is none, or too large, is refused and breaks nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2

LARGE = ("9" * 30, "9" * 5000, "-" + "9" * 30, str(2**63), "-1")
NONE = ("²", "١٢", "１２", "1e400", "nan", "inf", "0x10", "1.5", "", "\x00")
REFUSED = {400, 404}
NAMES = {"name": "default", "document_id": "1", "number": "1", "conversation_id": "1"}  # of the rest of the path


def numbers(schema: dict[str, Any]) -> bool:
    kinds = [schema, *schema.get("anyOf", ())]
    return any(one.get("type") in ("integer", "number") for one in kinds)


def places(description: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Method, path, name of the number, and where it stands."""
    for path, methods in description["paths"].items():
        for method, told in methods.items():
            for one in told.get("parameters", ()):
                if numbers(one["schema"]):
                    yield method.upper(), path, one["name"], one["in"]


def test_what_is_no_number_or_too_large_is_refused(client: httpx2.Client) -> None:
    seen = set()
    for method, path, name, where in places(client.get("/openapi.json").json()):
        seen.add(name)
        for value in LARGE + NONE:
            values = NAMES | ({name: value} if where == "path" else {})
            query = {name: value} if where == "query" else {}
            filled = path.format_map({one: quote(told, safe="") for one, told in values.items()})
            found = client.request(method, filled, params=query)
            assert found.status_code in REFUSED, (method, path, name, value[:40], found.text)
    assert seen >= {"document_id", "number", "after", "limit", "last", "start", "end", "dpi", "ram_bytes", "disk_bytes"}
