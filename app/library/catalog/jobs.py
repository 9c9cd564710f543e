"""Jobs: what clients have asked for and some process does, now or when the one that began it has been killed.

Whoever claims a job holds a lease of it, and renews it. When that runs out the job is anybody's, and once another has
claimed it, whoever held it before can change nothing: each claim has a lease of its own. With PostgreSQL the server's
clock counts, which all machines share.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, or_, select, update

from app.document_names import forms
from app.errors import Conflict, LimitReached, NotFound
from app.job_states import ENDED, GAVE_WAY, JobKind, JobState
from app.library.catalog.database import DatabasePart
from app.library.catalog.job_conditions import NONE, Ids, Owners, at_place, claimable, free, left, named, of_owner
from app.library.catalog.keys import hold_key
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import KeyLimits, StoredJob
from app.library.catalog.serving_tables import JOBS
from app.library.catalog.tables import now

ATTEMPTS = 3  # of a job whose processes end under it, or which meets faults of the machine
_COLUMNS = [JOBS.c[name] for name in StoredJob.__dataclass_fields__]
_FREE: dict[str, Any] = {"lease": None, "leased_until": None}


class Jobs(DatabasePart):
    """Each belongs to a collection, and goes with it. One of another owner is not there; `owner` None is everybody.

    What a worker does with the job that it has claimed tells whether it still has it.
    """

    def create(
        self,
        collection: Collection,
        request: Mapping[str, Any],
        owner: str = "",
        kind: JobKind = "ingest",
        limits: KeyLimits | None = None,
    ) -> StoredJob:
        """`limits`: of all jobs of the owner that are known together. A request with a name keeps when it came, by the
        clock of all, since `created` begins anew with a retry. Raises LimitReached and KeyLapsed.
        """
        with self._database.writing() as connection:
            made = _moment(connection)
            hold_key(connection, owner, made)  # one job of the key after the other
            if limits is not None:
                _check_limits(connection, limits, owner, int(request["size"]))
            came = {"came": made.isoformat()} if "name" in request else {}
            job = StoredJob(uuid.uuid4().hex, kind, collection.id, owner, "queued", {**request, **came}, made)
            connection.execute(insert(JOBS), vars(job))
        return job

    def get(self, job_id: str, owner: str | None) -> StoredJob:
        with self._database.reading() as connection:
            return _job(connection, job_id, owner)

    def these(self, ids: Iterable[str]) -> list[StoredJob]:
        """Of whatever owner, those that are there."""
        with self._database.reading() as connection:
            rows = connection.execute(select(*_COLUMNS).where(JOBS.c.id.in_(sorted(ids))))
            return [StoredJob(**row._mapping) for row in rows]

    def all(
        self,
        *,
        owner: str | None,
        collection: Collection | None = None,
        within: Iterable[int] | None = None,
        state: JobState | None = None,
        kind: JobKind | None = None,
        limit: int | None = None,
    ) -> list[StoredJob]:
        """The newest first. `within`: of collections with these ids alone."""
        query = select(*_COLUMNS).where(of_owner(owner)).order_by(JOBS.c.created.desc(), JOBS.c.id).limit(limit)
        if collection is not None:
            query = query.where(JOBS.c.collection_id == collection.id)
        if within is not None:
            query = query.where(JOBS.c.collection_id.in_(sorted(within)))
        if state is not None:
            query = query.where(JOBS.c.state == state)
        if kind is not None:
            query = query.where(JOBS.c.kind == kind)
        with self._database.reading() as connection:
            return [StoredJob(**row._mapping) for row in connection.execute(query)]

    def newer(self, job: StoredJob) -> list[StoredJob]:
        """Those of files that came later than its own, under the same name into the same collection."""
        names = {job.request["name"], *forms(job.request["name"])}
        own = JOBS.c.collection_id == job.collection_id, JOBS.c.kind == job.kind, or_(*map(named, names))
        with self._database.reading() as connection:
            found = [StoredJob(**row._mapping) for row in connection.execute(select(*_COLUMNS).where(*own))]
        return [one for one in found if one.came > job.came and one.request.get("name") in names]

    def check_limits(self, limits: KeyLimits, owner: str, nbytes: int, documents: int = 1) -> None:
        """Whether so many more, of so many bytes together, may come. Raises LimitReached."""
        if not limits.sends_all:
            with self._database.reading() as connection:
                _check_limits(connection, limits, owner, nbytes, documents)

    def counts(self, owner: str | None) -> dict[JobState, int]:
        """How many there are in each state that any is in."""
        query = select(JOBS.c.state, func.count()).where(of_owner(owner)).group_by(JOBS.c.state)
        with self._database.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def queued(self, owner: str | None, place: str) -> int:
        """How many wait there. `place`: see `claim`."""
        waiting = (JOBS.c.state == "queued") & of_owner(owner) & at_place(place)
        with self._database.reading() as connection:
            return int(connection.scalar(select(func.count()).select_from(JOBS).where(waiting)) or 0)

    def waits(self, place: str = "", but: Ids = NONE, besides: Owners = NONE) -> bool:
        """Whether `claim` would find one."""
        with self._database.reading() as connection:
            wanted = free(_moment(connection), place, but, besides)
            return connection.scalar(select(JOBS.c.id).where(wanted).limit(1)) is not None

    def claim(
        self, process: str, lease_s: float, place: str = "", but: Ids = NONE, besides: Owners = NONE
    ) -> StoredJob | None:
        """A job that nobody works on is this process's now: the oldest of the owner who has waited longest since one of
        theirs began, so that who sends many holds nobody up. Where there is none, it is only a look.

        `place`: of those alone whose request names it, since their files are there and nowhere else.
        `but`: of other collections than these. `besides`: of other owners than these.
        """
        if not self.waits(place, but, besides):
            return None
        with self._database.writing() as connection:
            moment = _moment(connection)
            _give_up(connection, moment)
            wanted = free(moment, place, but, besides)
            oldest = select(JOBS.c.id).where(wanted).order_by(JOBS.c.created, JOBS.c.id).limit(1)
            oldest = oldest.with_for_update(skip_locked=True)
            turns = _turns(connection, wanted)
            found = (connection.scalar(oldest.where(JOBS.c.owner == owner)) for owner in turns)
            job_id = next((one for one in found if one is not None), None)  # others may have taken the first one's
            if job_id is None:
                return None
            lease = {"lease": uuid.uuid4().hex, "leased_until": moment + timedelta(seconds=lease_s)}
            claimed = {"state": "running", "attempts": JOBS.c.attempts + 1, "process": process, "started": moment}
            connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(claimed | lease | {"error": None}))
            return _job(connection, job_id, None)

    def renew(self, job: StoredJob, lease_s: float) -> StoredJob | None:
        """As it is now, `cancelling` where its worker is to stop it. None: it is no longer the worker's."""
        with self._database.writing() as connection:
            until = _moment(connection) + timedelta(seconds=lease_s)
            return _job(connection, job.id, None) if _change(connection, job, {"leased_until": until}) else None

    def progress(self, job: StoredJob, progress: Mapping[str, Any]) -> bool:
        with self._database.writing() as connection:
            return _change(connection, job, {"progress": dict(progress)})

    def finish(self, job: StoredJob, progress: Mapping[str, Any] | None = None) -> bool:
        return self._end(job, "done", {} if progress is None else {"progress": dict(progress)})

    def fail(self, job: StoredJob, error: str, progress: Mapping[str, Any] | None = None) -> bool:
        """`progress`: as of `finish`; `final` in it says that the job would fail alike however often it is tried."""
        return self._end(job, "failed", {"error": error} | ({} if progress is None else {"progress": dict(progress)}))

    def stop(self, job: StoredJob) -> bool:
        """Its worker has heard that it is cancelled."""
        return self._end(job, "cancelled", {})

    def release(self, job: StoredJob, *, behind: bool = False) -> bool:
        """Its worker ends before the job does: another may have it at once, and this was no attempt. `behind`: behind
        those that wait now.
        """
        values = _FREE | {"state": "queued", "attempts": JOBS.c.attempts - 1}
        with self._database.writing() as connection:
            later = {"created": _moment(connection)} if behind else {}
            return _change(connection, job, values | later)

    def put_back(self, job: StoredJob, error: str) -> bool:
        """Another may try it again: what it met may pass. This was an attempt."""
        with self._database.writing() as connection:
            return _change(connection, job, _FREE | {"state": "queued", "error": error})

    def abandon(self, process: str) -> int:
        """It has ended, as whoever calls this knows: others may have its jobs before their leases run out."""
        left = (JOBS.c.state == "running") & (JOBS.c.process == process)
        with self._database.writing() as connection:
            over = _moment(connection) - timedelta(seconds=1)
            return connection.execute(update(JOBS).where(left).values(leased_until=over, lease=None)).rowcount

    def cancel(self, job_id: str, owner: str | None) -> StoredJob:
        """At once where nobody works on it; else its worker is asked to stop. One that has ended stays as it is."""
        with self._database.writing() as connection:
            job = _job(connection, job_id, owner, hold=True)
            if job.state == "queued":
                _set(connection, job_id, {"state": "cancelled", "finished": _moment(connection)})
            elif job.state == "running":
                _set(connection, job_id, {"cancelling": True})
            return _job(connection, job_id, owner)

    def retry(self, job_id: str, owner: str | None) -> StoredJob:
        """One that has failed or was cancelled starts anew, behind those that wait. Raises Conflict for others, and
        for what is `final`."""
        with self._database.writing() as connection:
            job = _job(connection, job_id, owner, hold=True)
            if job.state not in ("failed", "cancelled"):
                raise Conflict(f"job {job_id!r} is {job.state}: one that failed or was cancelled can be tried again")
            if job.progress.get("final"):
                raise Conflict(f"job {job_id!r} would fail alike, and its file is not kept: mend it and send it again")
            anew = StoredJob(job.id, job.kind, job.collection_id, job.owner, "queued", job.request, _moment(connection))
            kept = {"progress": {GAVE_WAY: True}} if job.progress.get(GAVE_WAY) else {}
            # When it was begun last stays: its owner has had a turn then.
            _set(connection, job_id, {name: value for name, value in vars(anew).items() if name != "started"} | kept)
            return _job(connection, job_id, owner)

    def forget(self, before: datetime) -> tuple[str, ...]:
        """Those that ended before are no longer there -> their ids, whose files the caller may delete."""
        old = delete(JOBS).where(JOBS.c.state.in_(ENDED), JOBS.c.finished < before)
        with self._database.writing() as connection:
            return tuple(connection.scalars(old.returning(JOBS.c.id)))

    def give_up_elsewhere(self, before: datetime, place: str) -> None:
        """Those made before whose files are at another place, which does not come back by now."""
        told = "its file was sent to a machine that does not come back: send it again"
        with self._database.writing() as connection:
            moment = _moment(connection)
            lost = claimable(moment) & ~at_place(place) & (JOBS.c.created < before)
            connection.execute(update(JOBS).where(lost).values(state="failed", error=told, finished=moment, **_FREE))

    def _end(self, job: StoredJob, state: JobState, values: Mapping[str, Any]) -> bool:
        with self._database.writing() as connection:
            return _change(connection, job, {**_FREE, **values, "state": state, "finished": _moment(connection)})


def _check_limits(connection: Connection, limits: KeyLimits, owner: str, nbytes: int, documents: int = 1) -> None:
    """Those that have failed count too: their files are kept, so that they can be tried again."""
    if limits.sends_all:
        return
    sent = select(JOBS.c.request).where(of_owner(owner), JOBS.c.kind == "ingest")
    sizes = [int(one.get("size", 0)) for one in connection.scalars(sent)]
    beside = f" and sends {documents - 1}" if documents > 1 else ""
    if limits.documents is not None and len(sizes) + documents > limits.documents:
        raise LimitReached(f"this key has sent {len(sizes)} documents{beside}, and may send {limits.documents}")
    if limits.nbytes is not None and sum(sizes) + nbytes > limits.nbytes:
        raise LimitReached(f"this key has sent {sum(sizes):,} bytes, and may send {limits.nbytes:,}")


def _turns(connection: Connection, wanted: ColumnElement[bool]) -> list[str]:
    """The owners of such jobs: first who has waited longest since one of theirs began."""
    oldest = func.min(JOBS.c.created)
    owners = list(connection.scalars(select(JOBS.c.owner).where(wanted).group_by(JOBS.c.owner).order_by(oldest)))
    if len(owners) < 2:
        return owners
    began = select(JOBS.c.owner, func.max(JOBS.c.started)).where(JOBS.c.owner.in_(owners)).group_by(JOBS.c.owner)
    last: dict[str, datetime | None] = {row[0]: row[1] for row in connection.execute(began)}
    return sorted(owners, key=lambda owner: last[owner] or datetime.min.replace(tzinfo=UTC))


def _give_up(connection: Connection, moment: datetime) -> None:
    """What was to stop has, and what ended its process again and again would end the next one's too."""
    gone, ended = left(moment), _FREE | {"finished": moment}
    connection.execute(update(JOBS).where(gone, JOBS.c.cancelling).values(state="cancelled", **ended))
    told = f"it was tried {ATTEMPTS} times, and the last time its process ended while it worked on this"
    often = gone & (JOBS.c.attempts >= ATTEMPTS)
    connection.execute(update(JOBS).where(often).values(state="failed", error=told, **ended))


def _job(connection: Connection, job_id: str, owner: str | None, hold: bool = False) -> StoredJob:
    """`hold`: nobody else changes it before the end of the transaction."""
    query = select(*_COLUMNS).where(JOBS.c.id == job_id, of_owner(owner))
    row = connection.execute(query.with_for_update() if hold else query).one_or_none()
    if row is None:
        raise NotFound(f"no job {job_id!r}: it never was, or it ended long ago, or its collection is deleted")
    return StoredJob(**row._mapping)


def _change(connection: Connection, job: StoredJob, values: Mapping[str, Any]) -> bool:
    """By its worker, whose lease it must still have."""
    own = (JOBS.c.id == job.id) & (JOBS.c.state == "running") & (JOBS.c.lease == job.lease)
    return bool(connection.execute(update(JOBS).where(own).values(**values)).rowcount)


def _set(connection: Connection, job_id: str, values: Mapping[str, Any]) -> None:
    connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(**values))


def _moment(connection: Connection) -> datetime:
    """By the one clock of all who use the database."""
    if connection.dialect.name == "sqlite":
        return now()
    moment = connection.scalar(select(func.clock_timestamp()))
    assert isinstance(moment, datetime)
    return moment
