"""A store whose disk is the cache of a bucket that machines share.

What is put goes to the disk, and from there to the bucket when it can. The bucket is asked for chunks alone that the
disk has nothing of. It costs nobody his answer or ingest: it may be away, slow or full, and hold what is not ours.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from ragcache.address import is_prefix, lead_address
from ragcache.errors import BucketUntold, StoreError
from ragcache.store.base import KVStore, OpenEntry, Tier
from ragcache.store.disk import DiskTier
from ragcache.store.entry import KnownForms
from ragcache.store.eviction import EvictionOrder
from ragcache.store.findings import BUCKET, Flaw
from ragcache.store.format import Header
from ragcache.store.held import HeldEntry
from ragcache.store.layout import FolderLayout
from ragcache.store.nearness import AT, Beyond
from ragcache.store.over import StoreOver
from ragcache.store.remote.arrivals import Arrivals
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.catalog import BucketCatalog, RemoteEntry
from ragcache.store.remote.courier import Courier
from ragcache.store.remote.journal import Journal, Kind, RemoteTask, entry_task
from ragcache.store.remote.names import ObjectPlace
from ragcache.store.remote.nearing import Nearing
from ragcache.store.remote.sent_record import SentRecord
from ragcache.store.remote.shared_uses import SharedUses
from ragcache.store.remote.use_record import UseRecord
from ragcache.types import KVForm, Variant, VariantInfo, VariantKey

LOOK_S = 0.5  # for which a prompt waits to hear what the bucket has of chunks that it asks for together
CLOSING_S = 10.0  # for uploads, when the program ends; the rest waits for the next one
MOST_MET = 64  # flaws of looks ahead
_log = logging.getLogger(__name__)


class SharedStore(StoreOver):
    """What it pins, trims, counts and verifies lies here: what is in the bucket `sweep.usage` counts."""

    def __init__(
        self,
        local: KVStore,
        disk: DiskTier,
        faster: Sequence[Tier],
        bucket: Bucket,
        *,
        budget: int | None,
        heads: slice | None,
        patience_s: float | None,
        order: EvictionOrder,
    ) -> None:
        """`local`: `disk` below the `faster` ones. `budget`: bytes of the bucket, of all machines; None leaves that to
        the bucket's own rules; `order`: what goes first there. `heads`: that `local` brings. `patience_s`: for what
        another process has planned.
        """
        super().__init__(local)
        self._disk, self._faster = disk, faster
        self._bucket = bucket
        self._patience_s = patience_s
        self._forms = KnownForms()
        self._catalog = BucketCatalog(bucket, len(faster) + 1, self._forms, self.most_variants)
        self._journal = Journal(disk.root, bucket.url)
        self._record, self._sent = UseRecord(disk.root, bucket.url), SentRecord(disk.root, bucket.url)
        self._arrivals = Arrivals(bucket, self._catalog, self._has_gone, self._keep, heads)
        self._counts = heads is None or not heads.start  # of ranks that each bring their heads, one
        self._courier = Courier(
            bucket,
            self._catalog,
            self._journal,
            self._sent,
            FolderLayout(disk.root),
            SharedUses(bucket, self._record),
            budget,
            order,
            self.most_variants,
        )
        self._process = os.getpid()
        self._met = deque[Flaw](maxlen=MOST_MET)  # of looks ahead, which nobody was told of
        self._nearing = Nearing(self._arrivals, self._far)
        if self._journal.waiting():
            self._courier.wake()

    def expect(self, form: KVForm, fingerprint: str = "") -> None:
        self._inner.expect(form, fingerprint)
        self._forms.know(form, fingerprint)

    @property
    def _is_child(self) -> bool:
        """Of a fork, which has no connections of its parent's, and perhaps locks that were held."""
        return self._process != os.getpid()

    def look_ahead(self, families: Collection[str]) -> None:
        if self._is_child:
            return
        for family in dict.fromkeys(families):
            with suppress(StoreError):  # whoever looks it up is told
                flaws = list[Flaw]()
                if not self._inner.variants(family, flaws):
                    self._catalog.look(family)
                self._met.extend(flaws)

    def variants(self, family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        """The bucket's where there are none nearer: it is waited for, so long in all for what is looked up ahead."""
        infos = self._inner.variants(family, flaws)
        if flaws is not None:
            flaws += [flaw for flaw in self._take_met() if flaw not in flaws]
        if infos or self._is_child:
            return infos
        found = self._remote(family)
        if flaws is not None:
            flaws += self._flaws()
        return [entry.info for entry in found]

    def _remote(self, family: str, *, ask: bool = True, patience_s: float | None = None) -> list[RemoteEntry]:
        """What it has of a family, but for what has gone here or was late; as far as is known if it does not `ask`."""
        if self._is_child:
            return []
        catalog, wait_s = self._catalog, LOOK_S if patience_s is None else patience_s
        found = catalog.look(family, wait_s, patient=patience_s is not None) if ask else catalog.known(family)
        soon = (entry for entry in (found.entries if found else ()) if not self._catalog.is_late(entry.place))
        return [entry for entry in soon if not self._journal.has_gone(entry.info.key, entry.parts)]

    def _take_met(self) -> Iterator[Flaw]:
        with suppress(IndexError):  # threads share it
            while True:
                yield self._met.popleft()

    def _flaws(self) -> list[Flaw]:
        return [*self._catalog.take_flaws(), *(Flaw(self._bucket.url, one) for one in self._bucket.take_told())]

    def open(self, key: VariantKey) -> OpenEntry | None:
        return self._opened(key, None)

    def bring(self, key: VariantKey) -> OpenEntry | None:
        return self._opened(key, self._patience_s)

    def _opened(self, key: VariantKey, patience_s: float | None) -> OpenEntry | None:
        if (entry := self._found(key, patience_s)) is not None:
            self._count(key)
        return entry

    def _count(self, key: VariantKey) -> None:
        """A use, of which the other machines are told; not of somebody's conversation, which no other has."""
        if self._counts and not self._is_child and not is_prefix(key) and self._record.count(key):
            self._courier.wake()

    def _found(self, key: VariantKey, patience_s: float | None) -> OpenEntry | None:
        if (entry := self._inner.open(key)) is not None or is_prefix(key):
            return entry
        if AT.disk:
            raise Beyond
        found = next((one for one in self._remote(key.family, patience_s=patience_s) if one.info.key == key), None)
        arrival = None if found is None else self._arrivals.begin(found.place)
        variant = None if arrival is None else self._arrivals.take(arrival)
        return None if variant is None or found is None else HeldEntry(variant, BUCKET, found.place.size)

    def near(self, chosen: Callable[[], Sequence[VariantKey]]) -> Callable[[], None]:
        return (lambda: None) if self._is_child else self._nearing.begin(chosen)

    def _far(self, key: VariantKey) -> list[ObjectPlace]:
        found = () if self._disk.holds(key) else self._remote(key.family, ask=False)
        return [entry.place for entry in found if entry.info.key == key]

    def _has_gone(self, variant: Variant) -> bool:
        return self._journal.has_gone(variant.key, {variant.key.chunk, *variant.key.context, *variant.lineage.seen})

    def _keep(self, header: Header, data: memoryview, variant: Variant) -> None:
        """On the disk as it came, and in the faster tiers; not what was deleted here meanwhile."""
        try:
            with ExitStack() as last:
                last.callback(lambda: self._has_gone(variant) and self._inner.delete(variant.key))
                for tier in self._faster:  # first: they serve where the disk is full
                    tier.offer(variant)
                self._disk.take_in(header, [data])
        except StoreError as error:
            _log.warning("not kept on the disk: %s", error)

    def put(self, variant: Variant, *, wanted: bool = False) -> bool:
        kept = self._inner.put(variant, wanted=wanted)
        if not kept or is_prefix(variant.key):  # of somebody's conversation, which comes back here if it does
            return kept
        self._count(variant.key)
        try:
            if not self._journal.add([entry_task(Kind.UPLOAD, variant.key)]):
                _log.warning("not uploaded, since too much waits for the bucket %s already", self._bucket.url)
        except StoreError as error:  # it is kept all the same
            _log.warning("not uploaded: %s", error)
        self._courier.wake()
        return kept

    def at_hand(self, key: VariantKey) -> OpenEntry | None:
        if (entry := self._inner.at_hand(key)) is not None:
            self._count(key)
        return entry

    def use(self, key: VariantKey) -> None:
        self._count(key)
        self._inner.use(key)

    def credit(self, key: VariantKey, worth: float) -> None:
        if self._counts and not self._is_child:
            self._record.credit(key, worth)
        self._inner.credit(key, worth)

    def delete(self, key: VariantKey) -> bool:
        there = any(entry.info.key == key for entry in self._remote(key.family, ask=False))
        self._record.forget([key.digest])
        with self._dropping(entry_task(Kind.DELETE, key)):
            return self._inner.delete(key) or there

    def delete_here(self, key: VariantKey) -> bool:
        return bool(self.delete_each([key], here=True))

    def delete_each(self, keys: Iterable[VariantKey], *, here: bool = False) -> list[VariantKey]:
        """What is meant `here` alone goes from the bucket too where it was sent from here, as behind its deletion."""
        if not here:
            return super().delete_each(keys)
        every = list(keys)
        sent = self._sent.of(every)
        try:
            with self._dropping(*(entry_task(Kind.DELETE, key) for key in sent)):
                self._record.forget(key.digest for key in every)
                return self._inner.delete_each(every)
        finally:  # a courier may have taken its file up in between
            if late := self._sent.of(key for key in every if key not in sent):
                with self._dropping(*(entry_task(Kind.DELETE, key) for key in late)):
                    pass

    def drop_chunk(
        self, fingerprint: str, system: str, chunk: str, border: str = "", *, elsewhere: bool = False, group: str = ""
    ) -> int:
        """How many went here: the bucket is told, and not waited for."""
        key, every = (lead_address(fingerprint, system, chunk, one) for one in (border, group or border))
        everywhere = [RemoteTask(Kind.CHUNK, (group or border, chunk))] if elsewhere else []
        with self._dropping(RemoteTask(Kind.FAMILY, (key.family,)), *everywhere):
            self._forget({key.family: ()}, self._inner.everywhere(every) if elsewhere else ())
            return self._inner.drop_chunk(fingerprint, system, chunk, border, elsewhere=elsewhere, group=group)

    def drop_families(self, families: Mapping[str, Collection[str]]) -> int:
        with self._dropping(*(RemoteTask(Kind.FAMILY, (one, *sorted(stay))) for one, stay in families.items())):
            self._forget(families)
            return self._inner.drop_families(families)

    def _forget(self, families: Mapping[str, Collection[str]], others: Sequence[VariantKey] = ()) -> None:
        """Uses of what goes here."""
        found = ((info.key.digest, stay) for one, stay in families.items() for info in self._inner.variants(one))
        self._record.forget([*(one for one, stay in found if one not in stay), *(key.digest for key in others)])

    def drop_seeing(self, chunks: Collection[str], stay: Collection[str] = ()) -> list[VariantKey]:
        """What went here: the bucket is told, and not waited for."""
        with self._dropping(*(RemoteTask(Kind.TRACES, (chunk, *sorted(stay))) for chunk in chunks)):
            gone = self._inner.drop_seeing(chunks, stay)
        self._record.forget(key.digest for key in gone)
        return gone

    @contextmanager
    def _dropping(self, *tasks: RemoteTask) -> Iterator[None]:
        """Written down first: what is on its way from the bucket then finds that it has gone, and a process that is
        killed in the block has told the bucket. What cannot be written down goes here all the same. Raises
        BucketUntold.
        """
        untold: StoreError | None = None
        with ExitStack() as last:
            last.callback(self._courier.wake)
            try:
                self._journal.add(tasks)
            except StoreError as error:
                untold = error
            try:
                yield
            finally:
                if untold is not None:
                    raise BucketUntold(str(untold)) from untold

    def settle(self, seconds: float) -> bool:
        """Wait until what has come is kept, and so long for the bucket to be told; says whether it is told all."""
        self._arrivals.settle()
        return self._courier.settle(seconds)

    def close(self) -> None:
        try:
            with suppress(StoreError):  # uses are a guess at what will be used
                self._record.keep()
            done = self.settle(CLOSING_S)
        finally:
            self._courier.close()
            self._inner.close()
            self._bucket.close()
        if not done:
            told = "the bucket %s is not told all yet, %d changes wait, and will be when this cache is open again"
            _log.warning(told, self._bucket.url, sum(self._journal.waiting().values()))
