from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from app import Settings
from app.library.catalog import open_catalog
from app.library.catalog.serving_tables import KEYS
from app.library.catalog.tables import now
from tests.app.cli.inside import Run, make_run
from tests.app.library.catalog.samples import make_collection


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGCACHE_LOG_LEVEL", "debug")
    return make_run(capsys, monkeypatch, "--data-dir", str(settings.data_dir))


def test_a_key_is_shown_once(run: Run, settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    ran = run("keys", "create", "Änne's laptop")
    token = ran.out.strip()
    key_id, secret = token.split("-", 2)[1:]
    assert (ran.code, ran.out) == (0, f"rk-{key_id}-{secret}\n"), "for a pipe"
    assert f"key {key_id} of Änne's laptop: read in all collections; it is shown once:\n" in ran.err
    listed = run("keys", "list").out + run("keys", "list", "--json").out
    assert key_id in listed
    for where in (ran.err, listed, caplog.text):
        assert secret not in where
    for file in settings.data_dir.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()
    with open_catalog(settings) as catalog:
        assert catalog.keys.verify(token) is not None


def test_what_it_may_do_and_where(run: Run, settings: Settings) -> None:
    with open_catalog(settings) as catalog:
        notes, _ = make_collection(catalog, "notes"), make_collection(catalog, "books")
    limits = ["--rate", "60", "--concurrent", "2", "--documents", "10", "--bytes", "2GiB"]
    many = ["--scope", "read", "--scope", "ingest", "-c", "notes", "-c", "books", "--expires", "2w", *limits]
    told = run("keys", "create", "a", *many, "--json").json
    assert told["key"].startswith(f"rk-{told['id']}-")
    del told["key"]
    assert run("keys", "list", "--json").json == {"keys": [told]}
    assert (told["scopes"], told["collections"], told["state"]) == (["ingest", "read"], ["books", "notes"], "good")
    wanted = {"requests_per_minute": 60, "concurrent": 2, "documents": 10, "nbytes": 2 << 30}
    assert told["limits"] == wanted
    left = datetime.fromisoformat(told["expires"]) - now()
    assert timedelta(days=13) < left <= timedelta(days=14)
    with open_catalog(settings) as catalog:
        catalog.collections.rename(notes, "old")
        catalog.collections.delete(catalog.collections.get("books"))
    assert run("keys", "list", "--json").json["keys"][0]["collections"] == ["old"]
    titles, row = run("keys", "list").out.splitlines()
    assert titles.split() == ["id", "name", "may", "collections", "limits", "made", "last", "used", "expires", "state"]
    assert "  ingest, read  old          60 a minute, 2 at a time, 10 documents, 2.0 GiB  " in row


def test_a_key_that_is_revoked_is_good_for_nothing(run: Run, settings: Settings) -> None:
    tokens = [run("keys", "create", name).out.strip() for name in "abc"]
    ids = [token.split("-")[1] for token in tokens]
    assert run("keys", "revoke", ids[0]).out == f"key {ids[0]} of a is revoked\n"
    ran = run("keys", "revoke", tokens[1], "--json")
    assert (ran.json["id"], ran.json["state"]) == (ids[1], "revoked"), "who finds one need not look for its id"
    with open_catalog(settings) as catalog:
        assert [bool(catalog.keys.verify(token)) for token in tokens] == [False, False, True]
        with catalog.database.writing() as connection:
            connection.execute(update(KEYS).where(KEYS.c.id == ids[2]).values(expires=now()))
    assert [key["state"] for key in run("keys", "list", "--json").json["keys"]] == ["revoked", "revoked", "expired"]
    ran = run("keys", "revoke", f"rk-nobody-{'s' * 43}")
    assert (ran.code, ran.out) == (1, "") and "no key 'nobody'" in ran.err and "s" * 43 not in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["a", "--scope", "write"], 2, "no scope: choose from read, ingest, admin"),
        (["a", "--expires", "soon"], 2, "no age: write 12h, 90d or 52w"),
        (["a", "--expires", "0d"], 2, "no age"),
        (["a", "--bytes", "much"], 2, "a size such as 4GiB"),
        (["a", "--rate", "0"], 2, "--rate"),
        (["a", "-c", "none"], 1, "no collection 'none'"),
        ([""], 1, "cannot name a key"),
        ([], 2, "name"),
    ],
)
def test_no_key_by_a_wrong_command(run: Run, arguments: list[str], code: int, said: str) -> None:
    ran = run("keys", "create", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert run("keys", "list", "--json").json == {"keys": []}


def test_looking_makes_no_catalog(run: Run, settings: Settings) -> None:
    assert run("keys", "list").out == "no keys yet: `ragcache keys create NAME` makes one\n"
    assert not settings.data_dir.exists()
