"""Exact prefixes of prompts, in blocks: the KV that a plain prefill of all that stands before their ends would hold.

A block's address is a chain: it names the engine, the ids of all blocks before it and its own, and the border of
whatever it may have seen. K is kept turned to its positions, since a block never stands elsewhere: so it is another
number format than that of variants, and the engine's name tells that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ragcache.address import MOST_SEEN, prefix_name
from ragcache.linking.base import Linker
from ragcache.planning import Plan, PlannedChunk, PrefixBlock, stored_variants
from ragcache.policy import Rates, Terms, Work, worthwhile
from ragcache.store.base import KVStore
from ragcache.types import (
    Chunk,
    Lineage,
    Pass,
    Profile,
    Segment,
    Span,
    Variant,
    VariantInfo,
    VariantKey,
    digest_of,
    ids_hash,
)

BLOCK = 128  # tokens
LEFT = 16  # tokens at the end of a prompt that are computed in any case: fewer go through other kernels than a prefill


@dataclass(frozen=True)
class BlockAddress:
    """Of a block that a prompt has."""

    span: Span
    key: VariantKey
    ids: tuple[int, ...]
    seen: tuple[str, ...]  # hashes of the chunks that stand before its end, or across it

    def variant(self, k: torch.Tensor, v: torch.Tensor) -> Variant:
        """k, turned to its positions, and v: [layers, kv_heads, BLOCK, head_dim]."""
        nobody = np.zeros(len(self.ids), np.float32)  # no linker ever asks what it attended to
        profile = Profile(nobody[None], nobody, nobody, (self.span.start,))
        lineage = Lineage((Pass(Span(0, len(self.ids)), ()),), self.seen)
        return Variant(self.key, self.ids, k, v, profile, lineage)


def addresses(segments: Sequence[Segment], fingerprint: str) -> Iterator[BlockAddress]:
    """Of all whole blocks that may be kept, from the front: up to where two borders meet, of whom neither may see what
    was computed over the other, or more chunks than a lineage tells.
    """
    ids = tuple(itertools.chain.from_iterable(segment.ids for segment in segments))
    name = prefix_name(fingerprint)
    chain, borders, seen = digest_of("prefix", name), set[str](), dict[str, None]()
    coming, reached = iter(segments), 0
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        span = Span(start, start + BLOCK)
        while reached < span.end:
            segment = next(coming)
            reached += len(segment)
            borders |= {segment.border} - {""}
            if isinstance(segment, Chunk):
                seen[segment.hash] = None
        if len(borders) > 1 or len(seen) > MOST_SEEN:
            return
        own = ids[span.start : span.end]
        key = VariantKey(name, chain, (), ids_hash(own), border="".join(borders))
        yield BlockAddress(span, key, own, tuple(seen))
        chain = digest_of("prefix", chain, key.chunk)


def exact_lead(plan: Plan) -> list[PlannedChunk]:
    """The chunks right behind System, or at the front, whose stored KV is what a prefill would hold."""
    lead, end = list[PlannedChunk](), plan.head
    for chunk in plan.chunks:
        if chunk.span.start != end or not (chunk.candidates and chunk.candidates[0].exact):
            break
        lead.append(chunk)
        end = chunk.span.end
    return lead


def with_prefix(plan: Plan, segments: Sequence[Segment], fingerprint: str, store: KVStore) -> Plan:
    """With the blocks that are stored behind System and exact chunks, up to the first that is not."""
    lead = exact_lead(plan)
    covered, incidents = (lead[-1].span.end if lead else plan.head), list(plan.incidents)
    blocks: list[PrefixBlock] = []
    for address in addresses(segments, fingerprint) if plan.system_exact else ():
        if address.span.end > len(plan.ids) - LEFT:
            break
        if address.span.end <= covered:
            continue
        infos = (info for info in stored_variants(store, address.key, incidents) if info.key == address.key)
        info = next((info for info in infos if info.lossless), None)
        if info is None:
            break
        blocks.append(PrefixBlock(Span(max(covered, address.span.start), address.span.end), address.span.start, info))
        covered = address.span.end
    return replace(plan, prefix=tuple(blocks), incidents=tuple(incidents))


def worth_bringing(plan: Plan, rates: Rates) -> Plan:
    """With as many of its blocks as bring the first token sooner than computing them."""
    saved = most = 0.0
    count = 0
    for place, block in enumerate(plan.prefix):
        saved += _saved(block.span, block.info, rates)
        if saved > most:
            count, most = place + 1, saved
    gone = plan.prefix[count:]
    if not gone:
        return plan
    rates.declined("", {block.info.tier for block in gone})
    declined = plan.declined + sum(len(block.span) for block in gone)
    return replace(plan, prefix=plan.prefix[:count], declined=declined)


def _saved(span: Span, info: VariantInfo, rates: Rates) -> float:
    """Seconds, by bringing what would be computed."""
    computed = rates.seconds(Work.of_rows(span.start, span.end))
    return computed - rates.bring_seconds(info.tier, info.nbytes, len(span))


def worth_linking(plan: Plan, linker: Linker, rates: Rates, overlaps: bool) -> Plan:
    """Of the chunks behind the prefix it is asked whether they are sooner linked, as if all before were known. What
    stands before it is as good as computed, and each judged for itself, unless the loader does that.
    """
    begin = plan.prefix[0].span.start if plan.prefix else 0
    before = [chunk for chunk in plan.chunks if chunk.span.end <= begin]
    apart = replace(plan, chunks=(*map(_without, before), *plan.chunks[len(before) :]), declined=0)
    judged = worthwhile(apart, linker, rates, Terms(known=plan.prefix_end, overlaps=overlaps))
    gone = [
        chunk
        for chunk in before
        if not overlaps and chunk.candidates and _saved(chunk.span, chunk.candidates[0].info, rates) < 0
    ]
    kept = (_without(chunk) if chunk in gone else chunk for chunk in before)
    declined = plan.declined + judged.declined + sum(len(chunk.span) for chunk in gone)
    return replace(judged, chunks=(*kept, *judged.chunks[len(before) :]), declined=declined)


def _without(chunk: PlannedChunk) -> PlannedChunk:
    return replace(chunk, candidates=())


def without_covered(plan: Plan) -> Plan:
    """Chunks that lie wholly in the prefix are not looked for beside it."""
    if not plan.prefix:
        return plan
    begin = plan.prefix[0].span.start
    chunks = (
        _without(chunk) if begin <= chunk.span.start and chunk.span.end <= plan.prefix_end else chunk
        for chunk in plan.chunks
    )
    return replace(plan, chunks=tuple(chunks))
