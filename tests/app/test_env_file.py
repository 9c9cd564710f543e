"""A `.env` that somebody else may have written decides nothing."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from app.cli.flags import configure
from app.settings import load_settings, redirection
from ragcache.errors import ConfigError

ELSEWHERE = "RAGCACHE_DATABASE_URL=postgresql://elsewhere/documents\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    folder = tmp_path / "checkout"
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(folder)
    return folder


def test_what_another_user_wrote_is_refused(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = checkout / ".env"
    file.write_text(ELSEWHERE)
    assert load_settings().database_url is not None
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    if file.stat().st_uid == 0:  # whose files everybody trusts
        os.chown(file, 1234, -1)
    with pytest.raises(ConfigError, match=rf"{file} belongs to another user \(id .*remove them, make the file yours"):
        load_settings()
    file.write_text("OTHER_PROGRAM=1\n")
    assert load_settings().database_url is None


def test_what_every_user_can_write_is_refused(checkout: Path) -> None:
    file = checkout / ".env"
    file.write_text("RAGCACHE_TOP_K=3\n")
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="can be written by every user"):
        load_settings()
    file.chmod(0o644)
    assert load_settings().top_k == 3
    checkout.chmod(0o777)
    with pytest.raises(ConfigError, match="lies in a folder that every user can write to"):
        load_settings()
    checkout.chmod(0o1777)  # as /tmp: others cannot put theirs in the place of ours
    assert load_settings().top_k == 3


def test_what_is_no_file_is_refused(checkout: Path) -> None:
    """Anybody may write to a pipe, at another moment another thing; nobody, and every command waits."""
    file = checkout / ".env"
    os.mkfifo(file)
    for read in (load_settings, redirection):
        with pytest.raises(ConfigError, match=r"cannot read \.env: it is a pipe or device, not a file"):
            read()
    file.unlink()
    file.mkdir()  # of a virtual environment
    assert load_settings().top_k == 5


def test_what_the_file_redirects_is_told(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("RAGCACHE_MODEL", "RAGCACHE_DATABASE_URL", "RAGCACHE_EMBEDDER", "RAGCACHE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    file = checkout / ".env"
    file.write_text(ELSEWHERE + "RAGCACHE_MODEL=org/model\nRAGCACHE_EMBEDDER=org/other\nRAGCACHE_TOP_K=3\n")
    monkeypatch.setenv("RAGCACHE_EMBEDDER", "bundled:minilm")
    assert redirection(model="bundled:smollm2") == f".env in {checkout} sets RAGCACHE_DATABASE_URL"
    with caplog.at_level(logging.INFO):
        configure()
    assert [record.getMessage() for record in caplog.records] == [
        f".env in {checkout} sets RAGCACHE_DATABASE_URL, RAGCACHE_MODEL"
    ]
    file.write_text("RAGCACHE_TOP_K=3\n")
    assert redirection() == ""
    assert redirection(None) == ""
