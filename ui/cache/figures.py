"""How much is where, and what it was good for, as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.client.amounts import count, size
from ui.markup import escape

Record = Mapping[str, Any]
OPEN = "cache-open"  # an action
NAMES = {"ram": "Memory", "disk": "Disk", "bucket": "Object store", "prefix": "Exact prefixes"}
ABOUT = {
    "ram": "for the soonest first words; gone when the server ends",
    "disk": "kept beyond the end of the server",
    "bucket": "shared by machines",
}
ORDERS = {
    "value": "what is asked for least for its size goes first",
    "lru": "what was used longest ago goes first",
    "lfu": "what was used least goes first",
    "fifo": "what came first goes first",
    "craft": "what was reused with least repair goes last",
}
NEARLY_FULL = 0.9  # of a budget: what is used least makes room soon


def tiers(found: Sequence[Record]) -> str:
    """A row for each, with a bar of its budget."""
    return f'<div class="rc-kv-tiers" role="list">{"".join(map(_tier, found))}</div>'


def _tier(one: Record) -> str:
    name, nbytes, budget = str(one["tier"]), int(one["bytes"]), one["budget"]
    of = f"of {size(budget)}" if budget else "no limit"
    share = nbytes / budget if budget else 0.0
    opened = int(one["hits"]) + int(one["misses"])
    facts = [count(one["entries"], "entry", "entries")]
    if opened:
        facts.append(f"{one['hits']:,} of {opened:,} reads found their KV")
    if one["evictions"]:
        facts.append(f"{one['evictions']:,} made room for others")
    if one.get("declined"):
        facts.append(f"{one['declined']:,} were not kept, since what is there is asked for more")
    if one["quarantined"]:
        facts.append(f"{one['quarantined']:,} were bad and put aside")
    if (order := str(one.get("order", ""))) and budget:
        facts.append(f"when full, {ORDERS.get(order, escape(order))}")
    told = "".join(f"<span>{fact}</span>" for fact in facts)
    return (
        f'<div class="rc-kv-tier" role="listitem"><span class="rc-kv-name">{escape(NAMES.get(name, name))}'
        f'<span class="rc-sub">{ABOUT.get(name, "")}</span></span>'
        f'<span class="rc-kv-amount"><strong>{size(nbytes)}</strong> {of}</span>{bar(share, f"{share:.0%} {of}")}'
        f'<span class="rc-facts rc-kv-wide">{told}</span></div>'
    )


def bar(share: float, about: str, *, warns: bool = True) -> str:
    """Slim; a little is never nothing."""
    width = 0.0 if share <= 0 else min(100.0, max(0.5, 100 * share))
    full = " rc-kv-full" if warns and share > NEARLY_FULL else ""
    inside = f'<div class="rc-kv-used{full}" style="width: {width:.1f}%"></div>'
    return f'<div class="rc-kv-bar" role="img" aria-label="{escape(about)}">{inside}</div>'


def collections(found: Sequence[Record], budget: int | None, opened: str | None) -> str:
    """A click on a name opens it. `budget`: of the disk, where it is told; else bars are by the largest one."""
    most = budget or max((int(one["bytes"]) for one in found), default=0)
    head = (
        "<tr><th>Collection</th><th>Chunks with KV</th>"
        '<th class="rc-number">On the disk</th><th class="rc-number rc-wide">Pinned</th></tr>'
    )
    body = "".join(_collection(one, most, str(one["name"]) == opened) for one in found)
    return f'<div class="rc-scroll"><table class="rc-table"><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _collection(one: Record, most: int, is_open: bool) -> str:
    name, nbytes, chunks, cached = str(one["name"]), int(one["bytes"]), int(one["chunks"]), int(one["cached"])
    current, row = (' aria-current="true"', ' class="rc-kv-open"') if is_open else ("", "")
    opens = (
        f'<button class="rc-link" dir="auto" data-rc="{OPEN}" data-rc-value="{escape(name)}"{current}>'
        f"{escape(name)}</button>"
    )
    share = cached / chunks if chunks else 0.0
    there = f"{cached:,} of {chunks:,}" if chunks else "no chunks"
    pinned = size(one["pinned_bytes"]) if one["pinned_bytes"] else "–"
    of_most = bar(nbytes / most if most else 0.0, f"{size(nbytes)} of {size(most)}", warns=False)
    return (
        f"<tr{row}><td>{opens}</td><td>{there}{bar(share, f'{there} chunks', warns=False)}</td>"
        f'<td class="rc-number">{size(nbytes)}{of_most}</td><td class="rc-number rc-wide">{pinned}</td></tr>'
    )


def sums(total: Record) -> str:
    """What answers had of the cache, in a few large figures."""
    rate = total["hit_rate"]
    tokens = total["reused"] + total["repaired"] + total["computed"]
    figures = [
        (
            "–" if rate is None else f"{rate:.0%}",
            "hit rate",
            f"of {count(tokens, 'token')} of passages in {count(total['answers'], 'answer')}",
        ),
        (f"{total['reused']:,}", "tokens reused", _sources(total["tiers"])),
        (f"{total['repaired']:,}", "tokens repaired", "brought, and computed again to fit where they stand"),
        (f"{total['computed']:,}", "tokens computed", "their KV was not there, or computing was sooner"),
    ]
    shown = "".join(
        f'<div class="rc-kv-figure"><strong>{value}</strong><span>{name}</span>'
        f'<span class="rc-sub">{about}</span></div>'
        for value, name, about in figures
    )
    return f'<div class="rc-kv-figures">{shown}</div>{savings(total)}'


def _sources(found: Mapping[str, int]) -> str:
    parts = [f"{tokens:,} from {NAMES.get(name, name).lower()}" for name, tokens in found.items() if tokens]
    return escape(", ".join(parts))


def savings(total: Record) -> str:
    """Measured and estimated apart, and neither where it is not known."""
    measured, estimated = total["measured"], total["estimated"]
    lines = []
    if measured["answers"]:
        lines.append(
            f"<strong>Measured:</strong> first words came {_sooner(measured)} without the cache, in "
            f"{count(measured['answers'], 'answer')} that {_was(measured['answers'])} made once more without it."
        )
    if estimated["answers"]:
        lines.append(
            f"<strong>Estimated:</strong> {_sooner(estimated)} without the cache, in "
            f"{count(estimated['answers'], 'answer')}, by how fast this machine computes."
        )
    if not lines:
        lines.append(
            "Seconds saved are not known yet. “Answer without cache” under an answer measures them; estimates come "
            "when the engine has measured itself for some answers."
        )
    return "".join(f'<p class="rc-kv-line">{line}</p>' for line in lines)


def _sooner(saving: Record) -> str:
    seconds = float(saving["seconds"])
    return f"{abs(seconds):,.1f} s {'sooner than' if seconds >= 0 else 'later than'}"


def _was(number: int) -> str:
    return "was" if number == 1 else "were"
