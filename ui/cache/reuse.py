"""The chunks that served most answers, with the beginning of their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.client.amounts import count, size
from ui.cache.figures import NAMES
from ui.markup import escape

Record = Mapping[str, Any]
NOTHING = (
    '<p class="rc-hint">No chunk has served an answer yet. When two questions need the same passage, the second one '
    "reuses what the first one computed, and it is told here.</p>"
)


def listed(found: Sequence[Record], named: bool) -> str:
    """`named`: with their collections."""
    if not found:
        return NOTHING
    return f'<ol class="rc-kv-chunks">{"".join(_chunk(one, named) for one in found)}</ol>'


def _chunk(one: Record, named: bool) -> str:
    name, title = str(one["name"]), str(one["title"])
    place = f"{title} · {name}" if title and title != name else name
    if named:
        place = f"{one['collection']} › {place}"
    text = " ".join(str(one["text"]).split())
    whole = len(str(one["text"])) >= int(one["end"]) - int(one["start"])
    facts = [f"<strong>{count(one['uses'], 'answer')}</strong>", f"{one['reused']:,} tokens reused in all"]
    facts += [count(one["tokens"], "token"), _where(one)]
    told = "".join(f"<span>{fact}</span>" for fact in facts)
    return (
        f'<li><span class="rc-kv-place" dir="auto">{escape(place)}</span>'
        f'<p class="rc-kv-text" dir="auto">{escape(text)}{"" if whole else "…"}</p>'
        f'<span class="rc-facts">{told}</span></li>'
    )


def _where(one: Record) -> str:
    """Where its KV is now."""
    if not one["tiers"]:
        return '<span class="rc-warm">its KV is not kept any more, or does not serve this key</span>'
    places = " and ".join(
        "memory" if tier == "ram" else NAMES.get(str(tier), str(tier)).lower() for tier in one["tiers"]
    )
    return f"{size(one['bytes'])} in {escape(places)}"
