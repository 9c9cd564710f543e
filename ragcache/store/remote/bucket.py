"""A bucket as we use it: names, parts of objects, whole ones; with time-outs, and left alone while it does not answer.

Its requests run beside one another on the event loop of one thread, in one process: a child of a fork has neither.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import numpy as np

from ragcache.errors import ConfigError, RemoteError, UnreadableObject
from ragcache.store.remote.faults import faults, is_archived, is_denied, is_of_object, reason_of
from ragcache.store.remote.health import ALL_DENIED, ALL_LOCKED, Health
from ragcache.store.remote.names import ObjectPlace, parse_name

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")
INSTALL = "pip install 'ragcache-kv[remote]'"
READS, WRITES = 16, 4  # requests of a kind that run beside one another
PAGE = 1000  # names that one request lists
PART = 8 << 20  # bytes that one request brings: a large object comes by several at once
_CONNECT_S, _STALL_S, _RETRIES, _RETRY_S = 3.0, 4.0, 2, 8.0
_UPLOAD_S = 120.0  # for one request: object stores send a large object in several


@dataclass(frozen=True, slots=True)
class BucketObject:
    """An object of whatever name."""

    path: str
    size: int
    written: datetime
    version: str | None


class Bucket:
    """Threads may share it. Coroutines run by `submit`, and raise RemoteError."""

    def __init__(self, url: str, clock: Callable[[], float] = monotonic):
        """Asks nothing of it yet. Raises ConfigError for what can be no bucket's URL."""
        self._store = _opened(url)
        self.url = url = shown(url)
        # Apart: who may list need not be let read, who may read need not be let write, and who may write need not be
        # let delete.
        self.listing, self.reading = Health("listed", url, clock), Health("read", url, clock)
        self.writing = Health("written to", url, clock, ALL_DENIED)
        self.deleting = Health("deleted from", url, clock, ALL_LOCKED)
        self.deleting_again = Health("deleted from", url, clock, ALL_LOCKED, quiet=True)  # what it denied before
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._reads, self._writes = asyncio.Semaphore(READS), asyncio.Semaphore(WRITES)
        thread = threading.Thread(target=_serve, args=(self._loop,), name="ragcache-bucket", daemon=True)
        thread.start()
        weakref.finalize(self, _stop, self._loop, os.getpid())

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it. Cancelling gives its requests up."""
        if self._process != os.getpid():
            return self._refused(work, "is not used by a child of its process")
        with self._lock:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        return self._refused(work, "is closed")

    def _refused(self, work: Coroutine[Any, Any, T], why: str) -> Future[T]:
        work.close()
        failed: Future[T] = Future()
        failed.set_exception(RemoteError(f"the bucket {self.url} {why}"))
        return failed

    def close(self) -> None:
        """What is under way is cancelled. A child of a fork leaves it to its parent."""
        if self._process == os.getpid():
            with self._lock:
                self._closed = True
            _stop(self._loop, self._process)

    def take_told(self) -> list[str]:
        """What is amiss, that nobody has been told yet."""
        ways = self.listing, self.reading, self.writing, self.deleting
        return [told for health in ways for told in health.take_told()]

    async def places(self, prefix: str = "") -> AsyncGenerator[list[ObjectPlace], None]:
        """Of our entries below a folder, page by page; what else lies there is left out."""
        async with aclosing(self.listed(prefix)) as pages:
            async for page in pages:
                told = (parse_name(one.path, one.size, one.written, one.version) for one in page)
                yield [place for place in told if place is not None]

    async def listed(self, prefix: str = "") -> AsyncGenerator[list[BucketObject], None]:
        """Of all objects below a folder, page by page."""
        import obstore

        self.listing.check()
        try:
            pages = obstore.list(self._store, prefix or None, chunk_size=PAGE)
            while True:
                async with self._reads:
                    page = await anext(pages, None)
                if page is None:
                    break
                self.listing.succeeded()
                yield [BucketObject(one["path"], one["size"], one["last_modified"], one["e_tag"]) for one in page]
        except faults() as error:
            raise self.listing.failed(reason_of(error)) from error

    async def read(self, path: str, start: int, end: int, *, aside: bool = False) -> memoryview | None:
        """These bytes, or fewer at its end; None where there is no such object. Raises UnreadableObject for what tells
        of it alone. `aside`: that it fails tells nothing of the bucket.
        """
        import obstore

        self.reading.check()
        try:
            async with self._reads:
                data = await obstore.get_range_async(self._store, path, start=start, end=end)
        except FileNotFoundError:
            data = None
        except faults() as error:
            raise self._unread(path, error, aside=aside) from error
        if not aside:
            self.reading.succeeded()
        return None if data is None else memoryview(data)

    def _unread(self, path: str, error: Exception, *, aside: bool) -> RemoteError:
        if is_of_object(error):
            told = f"{path} in the bucket {self.url} cannot be read: {reason_of(error)}"
            if self.reading.refused(path, told):
                return UnreadableObject(told, archived=is_archived(error))
        return RemoteError(reason_of(error)) if aside else self.reading.failed(reason_of(error))

    async def read_whole(self, place: ObjectPlace) -> memoryview | None:
        """As many bytes as it was listed with, not more; fewer are for the caller to refuse."""
        starts = range(0, place.size, PART)
        parts = await asyncio.gather(*(self.read(place.path, start, min(start + PART, place.size)) for start in starts))
        if any(part is None for part in parts):
            return None
        data = _aligned(place.size)
        end = 0
        for start, part in zip(starts, parts, strict=True):
            assert part is not None
            if start != end:
                break  # the one before it was cut short
            end = start + min(len(part), place.size - start)
            data[start:end] = part[: end - start]
        return data[:end]

    async def write(self, path: str, data: bytes | memoryview, *, aside: bool = False) -> None:
        """That one object may not be written says nothing of others; `aside`: that it fails, nothing of the bucket."""
        import obstore

        await self._writing([path], lambda: obstore.put_async(self._store, path, data), self.writing, aside=aside)

    async def delete(self, paths: Iterable[str], *, aside: bool = False, again: bool = False) -> set[str]:
        """Those that are not there are gone already -> those that may not go, and those that are not asked for since so
        many others may not. `aside`: that it fails tells nothing of the bucket. `again`: it has denied these before.
        """
        import obstore

        wanted = list(paths)
        way = self.deleting_again if again else self.deleting
        if not wanted or (way.left_s and not aside):
            return {*wanted}
        try:
            request = partial(obstore.delete_async, self._store, wanted)
            await self._writing(wanted, request, way, FileNotFoundError, aside=aside)
            return set()
        except FileNotFoundError:  # of a folder, which stops there
            denied = set[str]()
        except _Denied:
            denied = {*wanted}
        if len(wanted) > 1:  # which of them it was nothing tells; neighbours may be locked together
            denied = await self.delete(wanted[::2], aside=aside, again=again)
            denied |= await self.delete(wanted[1::2], aside=aside, again=again)
        return denied

    async def probe(self) -> float:
        """List, write, read and delete -> seconds of a round trip. Raises RemoteError for what cannot be done."""
        path, text = f"doctor/{secrets.token_hex(8)}", b"ragcache"
        async for _ in self.places(path):
            break
        self.deleting.check()
        await self.write(path, text)
        started = monotonic()
        found = await self.read(path, 0, len(text))
        seconds = monotonic() - started
        denied = await self.delete([path])
        if denied:
            raise RemoteError(f"what was written to the bucket {self.url} may not be deleted")
        if found is None or bytes(found) != text:
            raise RemoteError(f"the bucket {self.url} does not give back what was written to it")
        return seconds

    async def _writing(
        self,
        paths: Sequence[str],
        request: Callable[[], Awaitable[Any]],
        way: Health,
        *told: type[Exception],
        aside: bool,
    ) -> None:
        """Raises _Denied for what says nothing of others than these, and what is `told` as it is. `way`: of which it
        says something where many are denied.
        """
        async with self._writes:
            self.writing.check()  # here, since others may have failed while it waited
            way.check()
            try:
                await request()
            except told:
                raise
            except faults() as error:
                raise (RemoteError(reason_of(error)) if aside else self._unwritten(paths, way, error)) from error
        if not aside:
            self.writing.succeeded()
            way.succeeded()

    def _unwritten(self, paths: Sequence[str], way: Health, error: Exception) -> RemoteError:
        if not is_denied(error):
            return self.writing.failed(reason_of(error))
        what = "written" if way is self.writing else "deleted"
        told = f"{paths[0]} in the bucket {self.url} may not be {what}, and is tried again later: {reason_of(error)}"
        if len(paths) > 1 or way.refused(paths[0], told):
            return _Denied(told)
        failed = way.failed(reason_of(error))
        return failed if way is self.writing else _Denied(told)  # no walk ends there: it is told what is left


class _Denied(RemoteError):
    """Of some objects alone: others may well be written."""


def _opened(url: str) -> ObjectStore:
    try:
        from obstore.store import LocalStore, from_url
    except ImportError as error:
        raise ConfigError(f"the bucket {shown(url)} needs obstore ({error}): {INSTALL}") from error
    times = {"connect_timeout": _CONNECT_S, "read_timeout": _STALL_S, "timeout": _UPLOAD_S}
    options: Any = {name: timedelta(seconds=seconds) for name, seconds in times.items()} | {"allow_http": True}
    backoff: Any = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2}
    retries: Any = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S), "backoff": backoff}
    try:
        if url.startswith("file://"):
            return LocalStore.from_url(url, mkdir=True)
        return from_url(url, client_options=options, retry_config=retries)
    except faults() as error:
        raise ConfigError(
            f"{shown(url)!r} is no bucket that can be used: give s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"
            f" or https://server/prefix, and the provider's usual variables ({reason_of(error)})"
        ) from error


def _aligned(size: int) -> memoryview:
    """Memory for a file whose sections are to lie at multiples of 64 bytes."""
    room = np.empty(size + 63, np.uint8)
    start = -room.ctypes.data % 64
    return memoryview(room[start : start + size].data)


def shown(url: str) -> str:
    """Without what may be a secret of it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """On a thread. It knows nothing of the bucket, which may be gone."""
    asyncio.set_event_loop(loop)
    loop.run_forever()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


def _stop(loop: asyncio.AbstractEventLoop, process: int) -> None:
    if process == os.getpid():
        with suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(loop.stop)
