"""A PostgreSQL server of our own, for as long as the tests run: Debian's programs, an empty folder, nothing kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from tests.ports import held_port

USER = "ragcache"
PASSWORD = "s3cret-of-the-tests"


@dataclass(frozen=True)
class Server:
    port: int

    def url(self, database: str, user: str = USER, password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        self._run(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return self.url(database)

    def drop(self, database: str) -> None:
        self._run(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))

    def _run(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)


def programs() -> Path:
    """The newest version's folder; a test without a server would prove nothing, so there must be one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    assert found, "no PostgreSQL server here: install Debian's package postgresql, or run .ci/run"
    return found[-1].parent


@contextmanager
def running() -> Iterator[Server]:
    """It refuses to run as root, so root runs it as the user of Debian's package."""
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="ragcache-postgres-"))
    if user is not None:
        shutil.chown(folder, user, user)
    data = folder / "data"

    def run(program: str, *arguments: str) -> None:
        command = [str(programs() / program), "-D", str(data), *arguments]
        # The server goes on and would keep a pipe open: what it says goes into a file.
        with (folder / "out").open("a+") as out:
            ran = subprocess.run(command, user=user, group=user, cwd=folder, stdout=out, stderr=out)
            out.seek(0)
            assert ran.returncode == 0, out.read()

    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    try:
        run("initdb", "-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}", "-N", "-E", "UTF8", "--locale=C")
        with held_port() as port:
            run("pg_ctl", "-w", "-o", f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off", "start")
            try:
                yield Server(port)
            finally:
                run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
