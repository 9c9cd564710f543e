"""The address of KV names what it was computed from. It is made here alone, of ids and of the addresses of what stood
before them: whoever asks for a capture cannot choose it. The lineage beside it tells the same at length, and whatever
does not follow from an address without history is named by it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice

from ragcache.errors import PromptError
from ragcache.types import Chunk, Lineage, Pass, Segment, Span, System, Variant, VariantKey, digest_of, ids_hash

Placed = tuple[VariantKey, Sequence[int]]  # a stored variant's address and ids

MOST_CONTEXT = 128  # chunks that one is captured behind
MOST_TOLD = 1024  # the same, of what was stored by others
MOST_SEEN = 256  # chunks that a lineage tells: a header is read at each look-up that does not know it yet
BORDERS = "use up to 128 ASCII letters, digits, _ and -"
_BORDER = re.compile(r"[\w-]{1,128}", re.ASCII)

_PREFIX = "-prefix"


def system_address(fingerprint: str, system: str, border: str = "") -> VariantKey:
    """Of the System segment with this hash. No System stands before it: a chunk of the same ids, which has one, is
    another entry.
    """
    return VariantKey(fingerprint, "", (), system, border=border)


def prefix_name(fingerprint: str) -> str:
    """Stands in the fingerprint's place in addresses of exact prefixes (ragcache/prefix.py), which keep K otherwise."""
    return f"{fingerprint}{_PREFIX}"


def is_prefix(key: VariantKey) -> bool:
    """Whether it is that of a block of an exact prefix."""
    return key.fingerprint.endswith(_PREFIX)


def address_of(fingerprint: str, before: Sequence[Placed], segment: Segment) -> VariantKey:
    """Of a segment computed behind these variants: nothing for a System segment, else System and context chunks.

    Raises PromptError for what is not that, or when an address is not that of its ids.
    """
    check_border(segment)
    if not before:
        if not isinstance(segment, System):
            raise PromptError(f"a {_kind(segment)} has nothing before it: put the System segment there")
        return system_address(fingerprint, segment.hash, segment.border)
    if not isinstance(segment, Chunk):
        raise PromptError(f"a {_kind(segment)} stands behind others: of these, only chunks have KV to keep")
    (first, system), *context = before
    if first != system_address(fingerprint, ids_hash(system), first.border):
        raise PromptError("what stands first is not the System segment of its ids, so nothing behind it can be named")
    if len(context) > MOST_CONTEXT:
        raise PromptError(f"a chunk stands behind {len(context):,} others: capture it behind {MOST_CONTEXT:,} at most")
    border = border_behind(first.border, segment)
    for place, (key, ids) in enumerate(before):
        if place and (key.fingerprint, key.system, key.chunk) != (fingerprint, first.chunk, ids_hash(ids)):
            raise PromptError(f"what stands at place {place} is not its chunk's KV behind this System segment")
        if not may_see(border, key):
            raise PromptError(f"what stands at place {place} is within the border {key.border!r}, the chunk is not")
    keys = [key for key, _ in context]
    return VariantKey(
        fingerprint, first.chunk, tuple(key.chunk for key in keys), segment.hash, history_of(keys), border
    )


def check_border(segment: Segment) -> None:
    """Raises PromptError for a name that could be read as another."""
    if not is_border(segment.border):
        raise PromptError(f"the border {segment.border[:40]!r} is no name: {BORDERS}")


def is_border(told: object) -> bool:
    return isinstance(told, str) and (told == "" or _BORDER.fullmatch(told) is not None)


def group_of(border: str) -> str:
    """Borders whose names begin alike, as far as their first `-`, are a group. No border is called as it is."""
    return f"{border[: border.find('-') + 1]}*"


def is_within(border: str, borders: Collection[str]) -> bool:
    """Of these borders and groups."""
    return border in borders or group_of(border) in borders


def lead_address(fingerprint: str, system: str, chunk: str, border: str = "") -> VariantKey:
    """Of the chunk of this hash without context, behind the System segment of that hash and within this border; its
    family is that of all that is stored of the chunk there.
    """
    return VariantKey(fingerprint, system, (), chunk, border=border)


def is_of(key: VariantKey, other: VariantKey) -> bool:
    """Whether that is the same chunk's behind a System segment, within the key's border, or in the group that stands
    there.
    """
    return bool(other.system) and other.chunk == key.chunk and key.border in (other.border, group_of(other.border))


def border_behind(system: str, segment: Segment) -> str:
    """Of what is computed for a segment: what is everybody's is within the border of its System segment."""
    return segment.border or system


def may_see(border: str, other: VariantKey) -> bool:
    """Whether what is within this border may be computed over that."""
    return other.border in ("", border)


def behind_another_system(other: VariantKey, key: VariantKey) -> bool:
    """Whether that is the same chunk's, of the same engine and within the same border, behind another System segment.
    What was computed behind none is something else: the KV of a System segment, or of a chunk that stood first.
    """
    alike = (other.fingerprint, other.chunk, other.border) == (key.fingerprint, key.chunk, key.border)
    return alike and other.system not in ("", key.system)


def visible(context: Iterable[Variant], border: str) -> list[Variant]:
    """What of a context may be seen: a chunk is captured behind that alone."""
    return [variant for variant in context if may_see(border, variant.key)]


def lineage_of(tokens: int, before: Iterable[tuple[VariantKey, Lineage]]) -> Lineage:
    """Of so many tokens computed at once behind these: nothing, or System and context chunks."""
    behind = list(before)
    context = behind[1:]
    newest = (chunk for key, lineage in reversed(context) for chunk in (key.chunk, *reversed(lineage.seen)))
    seen = dict[str, None]()
    for chunk in newest:
        seen[chunk] = None
        if len(seen) > MOST_SEEN:
            break
    complete = len(seen) <= MOST_SEEN and all(lineage.complete for _, lineage in context)
    told = tuple(islice(seen, MOST_SEEN))[::-1]
    lost = dict.fromkeys(name for _, lineage in behind for name in lineage.lost)
    return Lineage((_pass(tokens, [key for key, _ in context]),), told, complete, tuple(lost))


def tellable(context: Sequence[Variant]) -> list[Variant]:
    """The last of a context that have together seen no more than a lineage tells: what is computed behind more would
    have to go with any text that goes.
    """
    kept = list(context)
    while kept and not lineage_of(1, [(kept[0].key, Lineage(())), *((one.key, one.lineage) for one in kept)]).complete:
        kept.pop(0)
    return kept


def untold_lineage(key: VariantKey, tokens: int) -> Lineage:
    """Of what was stored without one: as far as its address tells."""
    seen = tuple(dict.fromkeys(key.context))
    passes = () if key.history else (_pass(tokens, _plain(key)),)
    return Lineage(passes, seen[-MOST_SEEN:], complete=not key.history and len(seen) <= MOST_SEEN)


def lineage_flaw(key: VariantKey, tokens: int, lineage: Lineage) -> str | None:
    """Why it is none of this address, or None. KV of which some rows were computed elsewhere than the rest (a prompt's
    repairs) has a history, so that it is never taken for a prefill's.
    """
    if len(key.context) > MOST_TOLD or len(lineage.seen) > MOST_SEEN:
        return "it has seen more chunks than are told"
    if lineage.complete and len(key.context) <= MOST_SEEN and not set(key.context) <= set(lineage.seen):
        return "its context had no part in it"
    if not lineage.passes:
        return None if key.history and not lineage.complete else "nothing tells how it was computed"
    ends = [0, *(one.rows.end for one in lineage.passes)]
    starts = [one.rows.start for one in lineage.passes]
    if starts != ends[:-1] or ends[-1] != tokens or sorted(set(ends)) != ends:
        return f"its passes are not of {tokens} rows"
    if any(" " in digest for one in lineage.passes for digest in one.behind):
        return "what its passes were computed behind are no digests"
    if key.history:
        told = _named(lineage.passes)
        return None if told == key.history else "its passes are not what its history names"
    (only, *more), plain = lineage.passes, _plain(key)
    fits = len(only.behind) == len(plain) and all(
        digest in (one.digest, replace(one, border="").digest) for digest, one in zip(only.behind, plain, strict=True)
    )
    return None if fits and not more else "its passes had seen more than its address tells"


def history_of(context: Sequence[VariantKey]) -> str:
    """Names what the context's KV saw beside itself; "" when each saw just the System and the context before it."""
    seen: list[str] = []
    for key in context:
        if key.history or key.context != tuple(seen):
            return _named((_pass(1, context),))
        seen.append(key.chunk)
    return ""


def _named(passes: Sequence[Pass]) -> str:
    if len(passes) == 1:
        return digest_of(*passes[0].behind)
    return digest_of(*(f"{one.rows.start} {one.rows.end} {' '.join(one.behind)}" for one in passes))


def _plain(key: VariantKey) -> list[VariantKey]:
    """Addresses of the context where nothing was seen beside it."""
    return [replace(key, context=key.context[:place], chunk=chunk) for place, chunk in enumerate(key.context)]


def _pass(tokens: int, context: Sequence[VariantKey]) -> Pass:
    return Pass(Span(0, tokens), tuple(key.digest for key in context))


def _kind(segment: Segment) -> str:
    return type(segment).__name__
