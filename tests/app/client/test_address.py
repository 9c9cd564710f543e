"""Which server is asked, and that a key goes nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.client.address import COLLECTION, FIRST_COLLECTION, KEY, OWN, SERVER, NamedServer, find_server
from app.settings import Settings, variable
from ragcache.errors import ConfigError

HERE = "http://127.0.0.1:8000"
SECRET = "rk-0123456789ab-secret"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def found(url: str) -> NamedServer:
    server = find_server(url)
    assert server is not None
    return server


def test_its_settings_are_settings() -> None:
    assert {variable(name) for name in Settings.model_fields} > OWN
    assert Settings.model_fields["collection"].default == FIRST_COLLECTION


def test_a_url_is_taken_apart() -> None:
    server = find_server("https://example.org:8443/rag/v1/")
    assert server == NamedServer(True, "example.org", 8443, "/rag", None, FIRST_COLLECTION)


def test_what_is_no_url_is_refused_by_the_name_that_it_has_here() -> None:
    with pytest.raises(ConfigError, match="--server should be a URL"):
        find_server("127.0.0.1:8000")
    with pytest.raises(ConfigError, match=f"the key goes into {KEY}"):
        find_server(f"https://me:{SECRET}@example.org")


def test_the_flag_wins_over_the_environment_and_that_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert find_server(None) is None
    (tmp_path / ".env").write_text(f"{SERVER}=http://localhost:1\n{COLLECTION}=papers\n")
    of_file = find_server(None)
    assert of_file is not None
    assert (of_file.port, of_file.collection) == (1, "papers")
    assert capsys.readouterr().err == f"note: .env in {tmp_path} names the server\n"
    monkeypatch.setenv(SERVER.lower(), "http://localhost:2")
    of_environment = find_server(None)
    assert of_environment is not None
    assert of_environment.port == 2
    assert found("http://localhost:3").port == 3
    assert find_server("") is None
    monkeypatch.setenv(SERVER, "")
    monkeypatch.delenv(SERVER.lower())
    assert find_server(None) is None
    assert capsys.readouterr().err == ""


def test_a_key_is_sent_over_tls_or_within_the_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    for url in (HERE, "http://[::1]:8000", "http://localhost:8000", "https://example.org"):
        assert found(url).key == SECRET
        assert SECRET not in repr(found(url))
    with pytest.raises(ConfigError, match="use https, or a tunnel"):
        find_server("http://example.org")


def test_what_is_no_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "two words")
    with pytest.raises(ConfigError, match=f"{KEY} is no key: `ragcache keys create` makes one"):
        find_server(HERE)


def test_a_file_of_the_folder_does_not_say_where_a_key_of_the_environment_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KEY, SECRET)
    (tmp_path / ".env").write_text(f"{SERVER}=https://elsewhere.example\n")
    with pytest.raises(ConfigError, match=r"RAGCACHE_SERVER stands in \.env"):
        find_server(None)
    assert found(HERE).key == SECRET
    monkeypatch.delenv(KEY)
    (tmp_path / ".env").write_text(f"{SERVER}=https://elsewhere.example\n{KEY}=other\n")
    of_file = find_server(None)
    assert of_file is not None
    assert of_file.key == "other"


def test_a_misspelled_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGCACHE_API_KAY", SECRET)
    with pytest.raises(ConfigError, match=r"unknown setting RAGCACHE_API_KAY .* RAGCACHE_API_KEY"):
        find_server(HERE)
