"""Jobs: each done by one process at a time, also when some are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from app.errors import Conflict, LimitReached, NotFound
from app.library.catalog import Catalog
from app.library.catalog.jobs import ATTEMPTS
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import KeyLimits, StoredJob
from app.library.catalog.serving_tables import JOBS
from app.library.catalog.tables import now
from tests.app.library.catalog.samples import make_collection

ROOT = Path(__file__).parents[4]
LONG = 600.0
WORKER = """
import sys
from pathlib import Path
from pydantic import SecretStr
from app.library.catalog import open_catalog
from app.settings import Settings
with open_catalog(Settings(database_url=SecretStr(sys.argv[1]), data_dir=Path(sys.argv[2]))) as catalog:
    print("ready", flush=True)
    sys.stdin.readline()
    while job := catalog.jobs.claim(sys.argv[3], 600):
        print(job.id, flush=True)
        if sys.argv[4] == "hold":
            sys.stdin.readline()
        assert catalog.jobs.finish(job)
"""
REQUEST = {"files": [{"name": "a\udcff.pdf", "path": "/uploads/1"}]}


@contextmanager
def workers(catalog: Catalog, tmp_path: Path, how: str, count: int = 1) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of their own, each of which waits for a line before it claims the first job."""
    url = catalog.database.url.render_as_string(hide_password=False)
    command = [sys.executable, "-W", "error", "-c", WORKER, url, str(tmp_path / "elsewhere")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        made: list[subprocess.Popen[str]] = []
        for number in range(count):
            other = stack.enter_context(subprocess.Popen([*command, f"worker {number}", how], cwd=ROOT, **pipes))
            stack.callback(other.kill)
            made.append(other)
        assert [line(other) for other in made] == ["ready"] * count
        yield made


def line(other: subprocess.Popen[str]) -> str:
    assert other.stdout is not None
    return other.stdout.readline().strip()


def say(other: subprocess.Popen[str]) -> None:
    assert other.stdin is not None
    other.stdin.write("\n")
    other.stdin.flush()


def later(catalog: Catalog) -> None:
    """All leases have run out."""
    with catalog.database.writing() as connection:
        gone = now() - timedelta(seconds=1)
        connection.execute(update(JOBS).where(JOBS.c.leased_until.is_not(None)).values(leased_until=gone))


def claimed(catalog: Catalog, process: str = "p") -> StoredJob:
    job = catalog.jobs.claim(process, LONG)
    assert job is not None
    return job


def ids(jobs: Sequence[StoredJob]) -> list[str]:
    return [job.id for job in jobs]


def test_a_job_from_its_request_to_its_end(catalog: Catalog, collection: Collection) -> None:
    made = catalog.jobs.create(collection, REQUEST, "anna")
    assert (made.state, made.kind, made.owner, made.request, made.attempts) == ("queued", "ingest", "anna", REQUEST, 0)
    assert catalog.jobs.get(made.id, "anna") == made
    job = claimed(catalog, "server 1")
    assert (job.id, job.state, job.attempts, job.process, job.request) == (made.id, "running", 1, "server 1", REQUEST)
    assert job.started is not None and job.leased_until is not None and job.leased_until > job.started
    assert catalog.jobs.claim("server 2", LONG) is None
    assert catalog.jobs.progress(job, {"done": 1, "of": 2})
    renewed = catalog.jobs.renew(job, 2 * LONG)
    assert renewed is not None and renewed.progress == {"done": 1, "of": 2} and not renewed.cancelling
    assert renewed.leased_until is not None and renewed.leased_until > job.leased_until
    assert catalog.jobs.finish(job, {"done": 2, "of": 2})
    done = catalog.jobs.get(made.id, None)
    assert (done.state, done.progress, done.lease, done.leased_until) == ("done", {"done": 2, "of": 2}, None, None)
    assert done.finished is not None and done.finished >= job.started
    assert not catalog.jobs.finish(job) and not catalog.jobs.fail(job, "?") and not catalog.jobs.progress(job, {})
    assert catalog.jobs.renew(job, LONG) is None


def test_the_oldest_comes_first(catalog: Catalog, collection: Collection) -> None:
    made = [catalog.jobs.create(collection, {}) for _ in range(4)]
    assert [claimed(catalog).id for _ in made] == ids(made)


def test_who_sends_many_holds_nobody_up(catalog: Catalog, collection: Collection) -> None:
    anna = [catalog.jobs.create(collection, {}, "anna") for _ in range(3)]
    claimed(catalog)
    ben = [catalog.jobs.create(collection, {}, "ben") for _ in range(2)]
    late = catalog.jobs.create(collection, {}, "chris")
    turns = [claimed(catalog).id for _ in range(5)]
    assert turns == ids([ben[0], late, anna[1], ben[1], anna[2]])


def test_who_tries_again_waits_as_others_do(catalog: Catalog, collection: Collection) -> None:
    failing = catalog.jobs.create(collection, {}, "anna")
    others = [catalog.jobs.create(collection, {}, owner) for owner in ("ben", "chris") for _ in range(2)]
    turns = []
    for _ in range(6):
        catalog.jobs.fail(job := claimed(catalog), "torn")
        turns.append(job.owner)
        if job.id == failing.id:
            catalog.jobs.retry(job.id, "anna")
    assert turns == ["anna", "ben", "chris", "anna", "ben", "chris"]
    assert [catalog.jobs.waits(but={collection.id}), catalog.jobs.waits(besides={"anna"})] == [False, False]
    assert others and catalog.jobs.waits() and catalog.jobs.waits(besides={"ben"})


def test_jobs_are_listed_for_their_owner(catalog: Catalog, collection: Collection) -> None:
    other = make_collection(catalog, "other")
    first = catalog.jobs.create(collection, {}, "anna")
    second = catalog.jobs.create(other, {}, "anna")
    third = catalog.jobs.create(collection, {})
    catalog.jobs.fail(claimed(catalog), "torn")
    jobs = catalog.jobs
    assert ids(jobs.all(owner=None)) == [third.id, second.id, first.id]
    assert ids(jobs.all(owner=None, limit=2)) == [third.id, second.id]
    assert ids(jobs.all(owner="anna")) == [second.id, first.id]
    assert ids(jobs.all(owner="")) == [third.id]
    assert ids(jobs.all(owner="anna", collection=collection)) == [first.id]
    assert ids(jobs.all(owner=None, state="failed")) == [first.id]
    assert jobs.get(first.id, "anna").error == "torn"
    assert jobs.counts(None) == {"failed": 1, "queued": 2}
    assert jobs.counts("anna") == {"failed": 1, "queued": 1}
    catalog.collections.delete(other)
    assert ids(jobs.all(owner="anna")) == [first.id]


def test_a_job_of_another_is_not_there(catalog: Catalog, collection: Collection) -> None:
    job = catalog.jobs.create(collection, {}, "anna")
    for act in (catalog.jobs.get, catalog.jobs.cancel, catalog.jobs.retry):
        for foreign in ((job.id, ""), (job.id, "bob"), ("x", None), ("\udcff" * 99, "anna")):
            with pytest.raises(NotFound, match="no job"):
                act(*foreign)
    assert catalog.jobs.get(job.id, "anna") == job


@pytest.mark.slow
def test_each_job_is_claimed_by_one_of_many_processes(catalog: Catalog, collection: Collection, tmp_path: Path) -> None:
    made = [catalog.jobs.create(collection, {}) for _ in range(40)]
    with workers(catalog, tmp_path, "hurry", 3) as others:
        for other in others:
            say(other)
        done = [other.communicate(timeout=100)[0].split() for other in others]
        assert [other.returncode for other in others] == [0, 0, 0]
    assert sorted(job_id for of_one in done for job_id in of_one) == sorted(ids(made))
    assert {(job.state, job.attempts) for job in catalog.jobs.all(owner=None)} == {("done", 1)}


@pytest.mark.slow
def test_a_job_of_a_killed_process_goes_on(catalog: Catalog, collection: Collection, tmp_path: Path) -> None:
    made = catalog.jobs.create(collection, REQUEST)
    with workers(catalog, tmp_path, "hold") as (other,):
        say(other)
        assert line(other) == made.id
        assert catalog.jobs.claim("me", LONG) is None
        left = catalog.jobs.get(made.id, None)
        other.send_signal(signal.SIGKILL)
        other.wait(60)
    assert catalog.jobs.claim("me", LONG) is None, "nobody knows yet"
    later(catalog)
    job = claimed(catalog, "me")
    assert (job.id, job.attempts, job.process, job.request) == (made.id, 2, "me", REQUEST)
    assert job.lease != left.lease
    assert catalog.jobs.renew(left, LONG) is None, "it is another's, also should the process have slept only"
    assert not catalog.jobs.finish(left) and not catalog.jobs.fail(left, "?") and not catalog.jobs.release(left)
    assert catalog.jobs.finish(job)


def test_whoever_was_late_and_the_first_to_renew_has_it_still(catalog: Catalog, collection: Collection) -> None:
    catalog.jobs.create(collection, {})
    job = claimed(catalog)
    later(catalog)
    assert catalog.jobs.renew(job, LONG) is not None
    assert catalog.jobs.claim("q", LONG) is None


def test_what_kills_its_process_again_and_again_is_given_up(catalog: Catalog, collection: Collection) -> None:
    made = catalog.jobs.create(collection, {})
    catalog.jobs.create(collection, {})
    for _ in range(ATTEMPTS):
        assert claimed(catalog).id == made.id
        later(catalog)
    assert claimed(catalog).id != made.id
    found = catalog.jobs.get(made.id, None)
    assert (found.state, found.attempts, found.lease) == ("failed", ATTEMPTS, None)
    assert found.error is not None and "ended while it worked on this" in found.error


def test_a_server_that_ends_gives_its_job_back(catalog: Catalog, collection: Collection) -> None:
    catalog.jobs.create(collection, {})
    for _ in range(ATTEMPTS + 1):
        job = claimed(catalog)
        assert job.attempts == 1
        assert catalog.jobs.release(job)
    assert not catalog.jobs.release(job)


def test_cancelling(catalog: Catalog, collection: Collection) -> None:
    running, waiting = (catalog.jobs.create(collection, {}, "anna") for _ in range(2))
    job = claimed(catalog)
    assert catalog.jobs.cancel(waiting.id, "anna").state == "cancelled"
    asked = catalog.jobs.cancel(running.id, "anna")
    assert (asked.state, asked.cancelling, asked.lease) == ("running", True, job.lease)
    renewed = catalog.jobs.renew(job, LONG)
    assert renewed is not None and renewed.cancelling
    assert catalog.jobs.stop(job)
    for one in (running, waiting):
        stopped = catalog.jobs.get(one.id, "anna")
        assert stopped.state == "cancelled" and stopped.finished is not None
        assert catalog.jobs.cancel(one.id, None) == stopped
    assert catalog.jobs.claim("p", LONG) is None


def test_what_was_to_stop_when_its_process_was_killed_has_stopped(catalog: Catalog, collection: Collection) -> None:
    catalog.jobs.create(collection, {})
    job = claimed(catalog)
    catalog.jobs.cancel(job.id, None)
    later(catalog)
    assert catalog.jobs.claim("q", LONG) is None
    assert catalog.jobs.get(job.id, None).state == "cancelled"


def test_trying_again(catalog: Catalog, collection: Collection) -> None:
    made = catalog.jobs.create(collection, REQUEST, "anna")
    job = claimed(catalog)
    with pytest.raises(Conflict, match="is running: one that failed or was cancelled"):
        catalog.jobs.retry(job.id, "anna")
    catalog.jobs.progress(job, {"done": 1})
    catalog.jobs.cancel(job.id, "anna")
    catalog.jobs.fail(job, "torn")
    again = catalog.jobs.retry(job.id, "anna")
    as_it_was = {"created": made.created, "started": None}
    assert vars(again) | as_it_was == vars(made), "as it was, behind those that wait, and its owner has had a turn"
    assert again.created > made.created
    anew = claimed(catalog)
    assert (anew.id, anew.attempts, anew.cancelling) == (made.id, 1, False)
    catalog.jobs.finish(anew)
    with pytest.raises(Conflict, match="is done"):
        catalog.jobs.retry(job.id, None)


def test_what_ended_long_ago_is_forgotten(catalog: Catalog, collection: Collection) -> None:
    made = [catalog.jobs.create(collection, {}) for _ in range(3)]
    catalog.jobs.finish(claimed(catalog))
    running = claimed(catalog)
    assert catalog.jobs.forget(now() - timedelta(hours=1)) == ()
    assert catalog.jobs.forget(now() + timedelta(hours=1)) == (made[0].id,)
    assert ids(catalog.jobs.all(owner=None)) == [made[2].id, running.id]


@pytest.mark.parametrize("limits", [KeyLimits(documents=3), KeyLimits(nbytes=35)])
def test_a_key_brings_no_more_than_it_may_however_many_come_at_once(
    catalog: Catalog, collection: Collection, limits: KeyLimits
) -> None:
    key, _ = catalog.keys.create("a", ["ingest"], limits=limits)
    others = catalog.jobs.create(collection, {"size": 100}, "another")

    def create(number: int) -> None:
        with suppress(LimitReached):
            catalog.jobs.create(collection, {"size": 10}, key.id, limits=limits)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(8)))
    made = catalog.jobs.all(owner=key.id)
    assert len(made) == 3
    catalog.jobs.cancel(made[0].id, key.id)
    with pytest.raises(LimitReached):  # it could be tried again
        catalog.jobs.create(collection, {"size": 10}, key.id, limits=limits)
    assert catalog.jobs.all(owner="another") == [others]
