"""The contract of everything that keeps variants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from ragcache.address import is_within, lead_address, prefix_name
from ragcache.errors import StoreError
from ragcache.store.budgets import BudgetedTier, Resizable
from ragcache.store.findings import RAM, Fetched, Flaw, TierStats
from ragcache.types import KVForm, Origin, Span, Variant, VariantInfo, VariantKey

if TYPE_CHECKING:
    import torch

KV: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
NO_ERA = 0  # in which nothing is kept
ELSEWHERE = 8  # variants of a chunk behind other System segments that are looked at, of however many


class OpenEntry(ABC):
    """A variant where its tier keeps it, to be read whole or in parts: some layers of a block of tokens. Threads may
    read parts at once, in any order, until it is closed, which its `with` does.

    What is given out is shared: nobody writes it. Reading waits for a disk, so who must not wait leaves it to a loader,
    and raises as `KVStore.get` does. Whoever reads parts asks for the `origin` first: it looks at the ids.
    """

    tier: str  # where it was found
    nbytes: int  # to read there
    shape: tuple[int, int, int, int]  # of K and of V: [layers, kv_heads, n, head_dim]
    dtype: torch.dtype
    blocks: Sequence[Span]  # of tokens, all of them: what is read together

    @abstractmethod
    def origin(self) -> Origin: ...

    @abstractmethod
    def variant(self, read: KV | None = None) -> Variant:
        """The whole, of K and V that were `read` already where they are given."""

    @abstractmethod
    def read(self, block: int, layers: range) -> KV:
        """Of consecutive layers."""

    def read_into(self, block: int, layers: range, k: torch.Tensor, v: torch.Tensor) -> None:
        """`read`, written to where it belongs."""
        for place, part in zip((k, v), self.read(block, layers), strict=True):
            place.copy_(part)

    @abstractmethod
    def close(self) -> None:
        """Nothing is read any more."""

    def __enter__(self) -> OpenEntry:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class KVStore(Resizable):
    """Variants by key. Safe for several threads, and the disk tier for several processes.

    The numbers of the profile come back as they were put; those of K and V as the tier's codec keeps them, and the
    lineage says what that has lost: tiers and processes may hold copies of one key that differ in it.

    All methods raise StoreError when the tier itself fails (unreadable folder).
    A returned variant is shared: nobody writes its tensors. An entry is visible whole or not at all.
    """

    @abstractmethod
    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        """Of the KV of an engine, or of any: what a file holds in another form is none of it, whatever its name."""

    @abstractmethod
    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        """All variants of a chunk behind a System segment, in no order; headers and profiles alone are read. Waits for
        no lock, and raises nothing for a bad file: it is left out, added to `flaws`, and soon after quarantined.
        """

    def nearby(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        """As `variants`, of what is never far: no network is asked."""
        return self.variants(family, flaws)

    @abstractmethod
    def elsewhere(self, key: VariantKey, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        """Variants of the key's chunk behind other System segments, of the same engine and within the same border: the
        ELSEWHERE that were used last, in no order. Else as `variants`.
        """

    @abstractmethod
    def everywhere(self, key: VariantKey) -> list[VariantKey]:
        """All of its chunk behind System segments, of whatever engine, within its border or group, bad ones too."""

    @abstractmethod
    def open(self, key: VariantKey) -> OpenEntry | None:
        """The entry, to be read and closed, or None when there is none. Raises as `get`."""

    def bring(self, key: VariantKey) -> OpenEntry | None:
        """As `open`, of what was seen beyond the disk, perhaps by another process: it is looked for with patience."""
        return self.open(key)

    def at_hand(self, key: VariantKey) -> OpenEntry | None:
        """As `open`, of what can be read without waiting for a disk or a network; nothing is counted as missed."""
        return None

    def get(self, key: VariantKey) -> Fetched | None:
        """The entry whole, or None when there is none. Raises CorruptEntry or ForeignEntry when the bytes are bad; by
        then they are out of the way (quarantined), so the next call answers None.
        """
        started = perf_counter()
        if (entry := self.open(key)) is None:
            return None
        with entry:
            return Fetched(entry.variant(), entry.tier, entry.nbytes, perf_counter() - started)

    @property
    def memory(self) -> Tier | None:
        """Its part that ends with this process, where there is one."""
        return next((tier for tier in self.tiers() if isinstance(tier, Tier) and tier.name == RAM), None)

    @abstractmethod
    def put(self, variant: Variant, *, wanted: bool = False) -> bool:
        """Keep a variant, replacing one of the same key, and evict unpinned ones to stay within the budget -> whether
        it is kept.

        Of a chunk behind a System segment `most_variants` are kept: another one takes the place of the first in the
        order of eviction, but of none that is pinned and not of the one without context.

        Where the order of eviction finds what would have to go more useful, it is not kept, and counted as declined,
        unless it is `wanted`: by somebody who asked for it to be kept, and not by an answer that lacked it.

        Raises StoreError when it cannot be kept (full disk); nothing is then half-written, and what was there stays.
        """

    def put_within(self, era: int, variant: Variant) -> bool:
        """`put` what was computed since that `era`, if it has not ended; says whether it is there. Raises as `put`."""
        if self.era() != era:
            return False
        try:
            kept = self.put(variant)
        finally:  # also what a full disk left to RAM
            if is_over := self.era() != era:
                self.delete(variant.key)
        return kept and not is_over

    @abstractmethod
    def era(self) -> int:
        """A number that lasts until texts are deleted, by whatever process: a deletion ends it before it looks for what
        is to go. So what is put within one is found by the deletion that ends it, or by `put_within` itself.
        """

    @abstractmethod
    def end_era(self) -> None: ...

    @abstractmethod
    def use(self, key: VariantKey) -> None:
        """Count a use of an entry that was not opened: a faster tier served it, or computing it was sooner."""

    def credit(self, key: VariantKey, worth: float) -> None:
        """An entry was used, and was of more use the less of it was computed again: 1/CFO. Waits for nothing."""

    @abstractmethod
    def renew(self, key: VariantKey) -> None:
        """An entry is evicted later, as after a use; whoever opened it has counted that."""

    @abstractmethod
    def delete(self, key: VariantKey) -> bool:
        """Whether there was one to delete."""

    def delete_here(self, key: VariantKey) -> bool:
        """The same of this machine's alone: what machines share is left, unless this one has put it there."""
        return self.delete(key)

    def drop_chunk(
        self, fingerprint: str, system: str, chunk: str, border: str = "", *, elsewhere: bool = False, group: str = ""
    ) -> int:
        """Delete every variant of a chunk behind one System segment (by their hashes) and, `elsewhere`, behind all, of
        all engines, and in a whole `group` of borders -> how many. What others put meanwhile may stay, but in an era.
        """
        self.end_era()
        key = lead_address(fingerprint, system, chunk, border)
        every = self.everywhere(replace(key, border=group or border)) if elsewhere else ()
        gone = 0
        try:
            gone = len(self.delete_each(every))
        finally:  # its own System's also by their family, which is told too where a header could not be read
            gone += self.drop_families({key.family: ()})
        return gone

    def delete_each(self, keys: Iterable[VariantKey], *, here: bool = False) -> list[VariantKey]:
        """What went. Raises StoreError when it has tried all: one that cannot be deleted keeps no other."""
        gone, failed, delete = list[VariantKey](), list[StoreError](), self.delete_here if here else self.delete
        for key in keys:
            try:
                if delete(key):
                    gone.append(key)
            except StoreError as error:
                failed.append(error)
        if failed:
            raise failed[-1]
        return gone

    def drop_families(self, families: Mapping[str, Collection[str]]) -> int:
        """Delete every variant of these, wherever it is, but those of the digests that stay -> how many, here."""
        found = ((info.key, stay) for one, stay in families.items() for info in self.variants(one))
        return len(self.delete_each(key for key, stay in found if key.digest not in stay))

    @abstractmethod
    def seeing(self, chunks: Collection[str]) -> list[VariantKey]:
        """Those that any of these chunks (by token hash) had a part in, also through KV that they were computed over,
        as their lineages tell, and those whose lineages do not tell all. It looks at a few names of every entry.
        """

    def drop_seeing(self, chunks: Collection[str], stay: Collection[str] = ()) -> list[VariantKey]:
        """Delete what any of these chunks had a part in, and leave their own variants -> what went. What is within the
        borders and groups that `stay` does not.
        """
        self.end_era()
        return self.delete_each(key for key in self.seeing(chunks) if not is_within(key.border, stay))

    def drop_prefixes(self) -> None:
        """Delete all exact prefixes, of whatever engine."""
        self.end_era()
        self.trim(prefix_name(""), 0.0)

    def look_ahead(self, families: Collection[str]) -> None:
        """These are looked up next: what is far is asked for all of them at once. Waits for nothing, raises nothing."""

    def near(self, chosen: Callable[[], Sequence[VariantKey]]) -> Callable[[], None]:
        """Bring what is far, of the entries that `chosen` says: it is called on another thread, or not at all where
        nothing is ever far. Given up when what is returned is called.
        """
        return lambda: None

    @abstractmethod
    def pin(self, key: VariantKey, pinned: bool = True, *, owner: str = "", seconds: float | None = None) -> None:
        """Keep an entry from being evicted, for as long as that is; or let go of it.

        It stays while any owner pins it. A key may be pinned before its entry is put; a pin outlives a replacement, and
        all end with `delete`. Raises ConfigError for an owner that is no UTF-8, and seconds beyond a hundred years.
        """

    @abstractmethod
    def trim(self, fingerprint: str, share: float, more: int = 0) -> None:
        """Evict what was used longest ago of the exact prefixes whose fingerprint ends so, until they and `more` bytes
        are at most that share of each tier's budget (of UNBOUNDED bytes where it has none). What is pinned stays.
        """

    @abstractmethod
    def stats(self) -> Sequence[TierStats]:
        """Of each tier, the fastest first; what the last one has outlives the program, if anything does."""

    @property
    def kept(self) -> TierStats:
        """Of the tier that keeps: those over it may well be smaller."""
        return self.stats()[-1]

    @abstractmethod
    def verify(self) -> list[Flaw]:
        """Read every byte; quarantine what is bad and say what it was."""

    def close(self) -> None:
        """End what runs for it, if anything does. What it is given later is kept, and no more than that."""

    @abstractmethod
    def check_integrity(self) -> None:
        """Assert the invariants of the bookkeeping (for tests)."""


class Tier(KVStore, BudgetedTier):
    """One place of a store that may have several."""

    level = 0  # how many faster ones stand over it

    def tiers(self) -> Sequence[BudgetedTier]:
        return (self,)

    def held(self) -> int:
        return self.kept.nbytes

    @abstractmethod
    def offer(self, variant: Variant) -> bool:
        """Keep what a slower tier has, if there is room for it; says whether."""

    def credit(self, key: VariantKey, worth: float) -> None:
        self.reuse.fading.credit(key.digest, worth)

    @abstractmethod
    def holds(self, key: VariantKey) -> bool: ...
