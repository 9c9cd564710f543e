"""Carries out what the journal says the bucket is to be told: on a thread of its own, again and again until it is."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, time

from ragcache.errors import FAULTS, CorruptEntry, ForeignEntry, RemoteError
from ragcache.host import carry_over
from ragcache.store.entry import EntryReader
from ragcache.store.eviction import VARIANTS, EvictionOrder
from ragcache.store.eviction.victims import displaced
from ragcache.store.format import Header
from ragcache.store.layout import FolderLayout, opened, stat_of
from ragcache.store.remote.bucket import Bucket
from ragcache.store.remote.catalog import BucketCatalog
from ragcache.store.remote.deletions import Deletions
from ragcache.store.remote.journal import Journal, Kind, RemoteTask
from ragcache.store.remote.names import ObjectPlace, object_name
from ragcache.store.remote.sent_record import SentRecord
from ragcache.store.remote.shared_uses import SharedUses, ToldUses
from ragcache.store.remote.sweep import lowered
from ragcache.store.remote.use_record import TOLD_S

AT_ONCE = 32  # uploads that are claimed together
AT_ONCE_NBYTES = 64 << 20  # of files that are held in memory for them, or one file
DELETIONS_AT_ONCE = 4096  # that one walk over the bucket's names serves
RECOUNT_NBYTES = 256 << 20  # uploaded here, after which the budget is looked at again
PATIENT_S = 3600.0  # for which a budget is left alone, since nobody knows what is used
REPEATED_S = 60.0  # after which a journal that failed is read again
_DELETIONS = (Kind.DELETE, Kind.FAMILY, Kind.CHUNK, Kind.TRACES)
_log = logging.getLogger(__name__)


class Courier:
    """Threads may share it. Its thread runs while there is something to do, or to try again."""

    def __init__(
        self,
        bucket: Bucket,
        catalog: BucketCatalog,
        journal: Journal,
        sent: SentRecord,
        layout: FolderLayout,
        uses: SharedUses,
        budget: int | None,
        order: EvictionOrder,
        variants: int = VARIANTS,
    ):
        """`order`: what goes first of a bucket beyond its budget. `variants`: of a chunk that are to stay in the bucket
        when one is uploaded.
        """
        self._bucket, self._catalog, self._journal, self._layout = bucket, catalog, journal, layout
        self._sent_record = sent
        self._uses, self._order, self._refused = uses, order, (-math.inf, -math.inf)
        self._deletions = Deletions(bucket, catalog, uses)
        self._budget, self._uncounted, self._variants = budget, RECOUNT_NBYTES, variants
        self._begin()
        carry_over(self)

    def _begin(self) -> None:
        self._process = os.getpid()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._idle, self._closed, self._wakes = True, False, 0

    def wake(self) -> None:
        """There is something to do. A child of a fork leaves it to its parent."""
        thread = threading.Thread(target=self._run, name="ragcache-courier", daemon=True)
        with self._change:
            self._wakes += 1
            self._idle = False
            self._change.notify_all()
            if not (self._thread is not None and self._thread.is_alive()) and not self._closed:
                with suppress(RuntimeError):  # there are no threads to be had: the next one does it
                    thread.start()
                    self._thread = thread

    def settle(self, seconds: float) -> bool:
        """Wait until nothing can be done now; says whether all is. What failed is tried again later."""
        with self._change:
            self._change.wait_for(lambda: self._thread is None or self._idle, seconds)
        return not self._journal.waiting()

    def close(self) -> None:
        """What is under way ends, or is done again by whoever opens the folder."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def before_fork(self) -> None: ...

    def after_fork(self) -> None: ...

    def after_fork_in_child(self) -> None:
        self._begin()
        self._closed = True

    def _run(self) -> None:
        while True:
            with self._change:
                wakes = self._wakes
            try:
                due = None if self._closed else 0.0 if self._worked() else self._next_s()
            except FAULTS as error:  # nobody else does what this thread is for
                _log.warning("the bucket %s is not told yet: %s", self._bucket.url, error, exc_info=True)
                due = REPEATED_S
            with self._change:
                if self._closed or (due is None and wakes == self._wakes):
                    self._thread, self._idle = None, True
                    self._change.notify_all()
                    return
                if due and wakes == self._wakes:
                    self._idle = True
                    self._change.notify_all()
                    self._change.wait_for(partial(self._disturbed, wakes), max(due, 0.02))
                    self._idle = False

    def _disturbed(self, wakes: int) -> bool:
        return self._closed or wakes != self._wakes

    def _next_s(self) -> float | None:
        due = self._journal.next_s()
        return None if due is None else max(due, self._left_alone_s())

    def _left_alone_s(self) -> float:
        """Seconds for which nothing can be told: for each change the bucket is listed and written to."""
        return max(self._bucket.listing.left_s, self._bucket.writing.left_s)

    def _worked(self) -> bool:
        """Whether anything was tried. Deletions go first: what is put anew after them is to stay."""
        if self._left_alone_s():  # to read files for it would be in vain
            return False
        if self._deleted(hopeless=False):
            return True
        tasks = self._journal.take((Kind.UPLOAD,), AT_ONCE)
        with self._claimed(tasks):
            self._sent_record.note(task.told[-1] for task in tasks)  # before their files are looked for
            waiting = iter(tasks)
            while not self._left_alone_s() and (part := list(self._readable(waiting))):
                self._upload([task for task, *_ in part], [found for _, found in part])
            self._journal.postpone(list(waiting))
        self._uses.tell()
        if left := self._bucket.deleting_again.left_s:  # or each of them would be taken in vain
            self._journal.rest(left)
        return self._deleted(hopeless=True) or bool(tasks)

    def _deleted(self, *, hopeless: bool) -> bool:
        """Whether any was tried."""
        tasks = self._journal.take(_DELETIONS, DELETIONS_AT_ONCE, hopeless=hopeless)
        if tasks:
            with self._claimed(tasks):
                self._journal.narrow(tasks, self._bucket.submit(self._deletions.run(tasks)).result())
        return bool(tasks)

    @contextmanager
    def _claimed(self, tasks: Sequence[RemoteTask]) -> Iterator[None]:
        """What is not ended in the block is tried again: here, or by another process."""
        try:
            yield
        except FAULTS as error:
            self._journal.postpone(tasks)
            if not isinstance(error, RemoteError | CancelledError):  # it is told once, by the bucket; it was closed
                raise

    # -- uploads ----------------------------------------------------------------------------------------------------

    def _readable(self, tasks: Iterator[RemoteTask]) -> Iterator[tuple[RemoteTask, tuple[Header, memoryview]]]:
        """The next of them, with their files, as far as these may be held in memory together."""
        nbytes = 0
        for task in tasks:
            try:
                found = self._read(task)
            except FAULTS as error:  # of this moment or this machine: the file may well be sound
                _log.warning("not uploaded yet: %s", error)
                self._journal.postpone([task])
                continue
            if found is None:
                may_be_sent = task.tries and self._journal.deletes_since(task.number)
                if may_be_sent and stat_of(self._layout.place(*task.told)) is None:
                    # An earlier try may have written what was deleted meanwhile. It takes the upload's place.
                    self._journal.add([RemoteTask(Kind.DELETE, task.told)])
                self._journal.end([task])
                continue
            nbytes += len(found[1])
            yield task, found
            if nbytes >= AT_ONCE_NBYTES:
                return

    def _read(self, task: RemoteTask) -> tuple[Header, memoryview] | None:
        """None where there is no sound file any more: it was evicted or deleted, or verifying it will tell. Raises what
        else stands in its way.
        """
        engine, family, digest = task.told
        path = self._layout.place(engine, family, digest)
        try:
            with opened(path) as fd:
                if fd is None:
                    return None
                reader = EntryReader.parts(fd, str(path))
                return (reader.header, reader.checked(fd)) if self._layout.holds(path, reader.header.key) else None
        except (CorruptEntry, ForeignEntry) as error:
            _log.warning("not uploaded: %s", error)
            return None

    def _upload(self, tasks: Sequence[RemoteTask], files: Sequence[tuple[Header, memoryview]]) -> None:
        sent = self._bucket.submit(self._sent(tasks, files)).result()
        self._journal.end([task for task, well in zip(tasks, sent, strict=True) if well])
        self._journal.postpone([task for task, well in zip(tasks, sent, strict=True) if not well])
        self._uncounted += sum(len(data) for (_, data), well in zip(files, sent, strict=True) if well)
        waits = monotonic() - self._refused[1] < min(TOLD_S, PATIENT_S) or self._bucket.deleting.left_s > 0
        if self._budget is not None and not waits and self._uncounted > min(RECOUNT_NBYTES, self._budget // 16):
            with suppress(RemoteError):
                self._uses.tell(at_once=True)
                gone = self._bucket.submit(self._lowered(self._budget)).result()
                _log.info("%d entries left the bucket %s, to stay in its budget", gone, self._bucket.url)

    async def _lowered(self, budget: int) -> int:
        """By what all machines use, as far as that is known; an hour later, where most of it cannot be read."""
        told = ToldUses(time())
        if self._order.heeds_uses:
            try:
                told = await self._uses.all_told(anew=True)
            except RemoteError as error:
                now, (since, last) = monotonic(), self._refused
                if now - last > PATIENT_S:
                    since = now
                    _log.warning("the bucket %s may be beyond its budget: %s", self._bucket.url, error)
                self._refused = since, now  # when the last refusals began, and the last one
                if now - since < PATIENT_S or not self._bucket.listing.fine:
                    raise
                told = await self._uses.all_told()
        self._uncounted = 0  # whatever comes of it: it lists all names
        gone = await lowered(self._bucket, budget, self._order, told)
        if self._bucket.deleting.left_s:
            self._uncounted = RECOUNT_NBYTES  # it goes on behind what was denied, when it may
        return gone

    async def _sent(self, tasks: Sequence[RemoteTask], files: Sequence[tuple[Header, memoryview]]) -> list[bool]:
        both = zip(tasks, files, strict=True)
        return list(await asyncio.gather(*(self._send(task.number, *file) for task, file in both)))

    async def _send(self, number: int, header: Header, data: memoryview) -> bool:
        """Whether it is there, or is not to be. `number`: of its task."""
        key, name = header.key, object_name(header.key, header.lineage)
        try:
            there = await self._catalog.places(key.family)
            if any(place.digest == key.digest for place in there):
                return True  # of the same content, whoever put it there
            await self._bucket.write(name, data)
            await self._bucket.delete(await self._displaced(header, there))
            parts = {key.chunk, *key.context, *header.lineage.seen}
            # Deleted while it was on its way, though its file may go last; what was put anew has a task of its own.
            if self._journal.has_gone(key, parts, since=number):
                return not await self._bucket.delete([name])
        except RemoteError:
            return False
        finally:
            self._catalog.forget(key.family)
        return True

    async def _displaced(self, header: Header, there: Sequence[ObjectPlace]) -> list[str]:
        """Of a chunk's variants, those that go first. The one without context stays, and a newer version's."""
        if len(there) < self._variants:
            return []  # and nobody is asked what is used
        told, lead = await self._uses.all_told(), header.key.lead.digest
        others = [told.evictable(one, stays=one.digest == lead or self._may_not_go(one)) for one in there]
        return [one.name for one in displaced(others, self._order, "", self._variants)]

    def _may_not_go(self, place: ObjectPlace) -> bool:
        ways = self._bucket.deleting, self._bucket.deleting_again
        return self._catalog.is_newer(place) or any(way.knows(place.path) for way in ways)
