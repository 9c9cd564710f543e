from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from app.library.catalog.database import database_url
from app.models.folders import resolve_embedder
from app.settings import Settings, default_cache_dir, default_data_dir, load_settings, parse_bytes
from ragcache.errors import ConfigError


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    return tmp_path / ".env"


def test_flags_win_over_environment_over_file_over_defaults(env_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env_file.write_text("RAGCACHE_MODEL=file\nRAGCACHE_EMBEDDER=file\nRAGCACHE_CODEC=file\n")
    monkeypatch.setenv("RAGCACHE_MODEL", "environment")
    monkeypatch.setenv("RAGCACHE_EMBEDDER", "environment")
    settings = load_settings(env_file, model="flag", embedder=None)
    found = (settings.model, settings.embedder, settings.codec, settings.engine)
    assert found == ("flag", "environment", "file", "torch")


def test_unknown_variable_of_the_environment_is_named_with_the_closest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGCACHE_CASH_DIR", "/tmp")
    with pytest.raises(ConfigError, match="RAGCACHE_CASH_DIR in the environment: did you mean RAGCACHE_CACHE_DIR"):
        load_settings(None)


def test_unknown_variable_of_the_file_is_named_with_the_file(env_file: Path) -> None:
    env_file.write_text("RAGCACHE_DTYP=float32\n")
    with pytest.raises(ConfigError, match=rf"RAGCACHE_DTYP in {env_file}: did you mean RAGCACHE_DTYPE"):
        load_settings(env_file)


def test_variables_of_other_programs_are_none_of_our_business(env_file: Path) -> None:
    env_file.write_text("POSTGRES_PASSWORD=x\nMODEL=other\n")
    assert load_settings(env_file).model == "bundled:smollm2"


def test_a_name_without_a_value_is_refused(env_file: Path) -> None:
    env_file.write_text("RAGCACHE_MODEL\n")
    with pytest.raises(ConfigError, match=r"RAGCACHE_MODEL .* has no value"):
        load_settings(env_file)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("DTYPE", "float16", "'auto', 'float32' or 'bfloat16'"),
        ("DEVICE", "tpu", "'auto', 'cpu' or 'cuda'"),
        ("THREADS", "0", "greater than or equal to 1"),
        ("THREADS", "many", "valid integer"),
        ("CONTEXT_CHUNKS", "-1", "greater than or equal to 0"),
        ("RAM_BYTES", "9 parsecs", "4GiB"),
        ("DISK_BYTES", "-1", "4GiB"),
        ("MODEL", "", "at least 1 character"),
        ("LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("RETRIEVAL", "magic", "'hybrid', 'vector' or 'keyword'"),
        ("TOP_K", "0", "greater than or equal to 1"),
        ("MAX_TOKENS", "0", "greater than or equal to 1"),
        ("CHUNK_TOKENS", "63", "at least 64, twice RAGCACHE_MIN_CHUNK_TOKENS=32"),
        ("MIN_CHUNK_TOKENS", "0", "greater than or equal to 1"),
        ("BACKUPS", "-1", "greater than or equal to 0"),
        ("RERANKER", "", "at least 1 character"),
        ("VARIANTS", "0", "greater than or equal to 1"),
        ("VARIANTS", "65", "less than or equal to 64"),
    ],
)
def test_a_bad_value_is_told_in_one_line(
    name: str, value: str, allowed: str, env_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"RAGCACHE_{name}", value)
    with pytest.raises(ConfigError) as told:
        load_settings(env_file)
    message = str(told.value)
    assert message.startswith(f"RAGCACHE_{name}={value!r} in the environment ")
    assert allowed in message
    assert "\n" not in message


def test_a_bad_value_says_where_it_was_set(env_file: Path) -> None:
    env_file.write_text("RAGCACHE_DTYPE=half\n")
    with pytest.raises(ConfigError, match=rf"RAGCACHE_DTYPE='half' in {env_file} "):
        load_settings(env_file)
    with pytest.raises(ConfigError, match="RAGCACHE_DTYPE='quarter' given as a flag "):
        load_settings(env_file, dtype="quarter")


def test_all_bad_values_are_told_at_once(env_file: Path) -> None:
    env_file.write_text("RAGCACHE_DTYPE=half\nRAGCACHE_THREADS=0\n")
    with pytest.raises(ConfigError, match=r"RAGCACHE_DTYPE.*; RAGCACHE_THREADS"):
        load_settings(env_file)


def test_a_default_that_a_setting_made_wrong_is_told_so(env_file: Path) -> None:
    env_file.write_text("RAGCACHE_MIN_CHUNK_TOKENS=300\n")
    with pytest.raises(ConfigError, match=r"^RAGCACHE_CHUNK_TOKENS=240 by default should be at least 600, .*=300$"):
        load_settings(env_file)
    assert load_settings(env_file, chunk_tokens=600).chunk_tokens == 600


def test_the_password_of_the_database_is_never_shown(env_file: Path) -> None:
    env_file.write_text("RAGCACHE_DATABASE_URL=postgresql://user:s3cret@host/books\n")
    settings = load_settings(env_file)
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql://user:s3cret@host/books"
    assert "s3cret" not in f"{settings!r} {settings} {settings.model_dump_json()}"
    env_file.write_text("RAGCACHE_DATABASE_URL=user:s3cret@host/books\n")
    with pytest.raises(ConfigError, match=rf"^RAGCACHE_DATABASE_URL in {env_file} should be a URL: sqlite:") as told:
        load_settings(env_file)
    assert "s3cret" not in str(told.value)


def test_a_flag_that_is_no_setting_is_a_bug() -> None:
    with pytest.raises(TypeError, match="modell"):
        load_settings(None, modell="x")


def test_settings_are_frozen() -> None:
    settings = load_settings(None)
    with pytest.raises(ValidationError, match="frozen"):
        settings.model = "other"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("4GiB", 4 << 30),
        ("1.5 gib", 3 << 29),
        ("2KB", 2000),
        ("7 b", 7),
        ("1TiB", 2**40),
    ],
)
def test_sizes(text: str, number: int) -> None:
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "GiB", "4 GiB!", "-4", "4 G", "1e9", "4GiB 2"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="size such as"):
        parse_bytes(text)


@given(st.integers(0, 1 << 60))
def test_plain_numbers_of_bytes_lose_nothing(number: int) -> None:
    assert parse_bytes(str(number)) == number


def test_cache_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert default_cache_dir() == Path("/var/cache/ragcache")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_cache_dir() == Path("/home/somebody/.cache/ragcache")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert Settings().cache_dir == Path("/home/somebody/.cache/ragcache")


def test_data_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_DATA_HOME", "/var/data")
    assert default_data_dir() == Path("/var/data/ragcache")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_data_dir() == Path("/home/somebody/.local/share/ragcache")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert Settings().data_dir == Path("/home/somebody/.local/share/ragcache")


def test_home_is_understood_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("RAGCACHE_CACHE_DIR", "~/kv")
    assert load_settings(None).cache_dir == Path("/home/somebody/kv")


def test_a_home_folder_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = r"^~no-such-user/x: there is no home folder of that name here, so write the whole path$"
    with pytest.raises(ConfigError, match=told):
        load_settings(None, data_dir="~no-such-user/x")
    with pytest.raises(ConfigError, match=told):
        database_url(Settings(database_url=SecretStr("sqlite:///~no-such-user/x")))
    with pytest.raises(ConfigError, match=told):
        resolve_embedder("~no-such-user/x")
