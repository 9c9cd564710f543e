"""Addresses and keys of servers: what is none is refused before anything is sent, and not repeated."""

from __future__ import annotations

import pytest

from ragcache.errors import ConfigError
from ragcache.server_address import ServerAddress

HERE = "http://127.0.0.1:8000"
SECRET = "0123456789ab-secret"


def read(url: str, key: str | None = None) -> ServerAddress:
    return ServerAddress.read(url, key, "ITS_URL", "ITS_KEY", "the server made one")


def refused(url: str, key: str | None = None) -> str:
    with pytest.raises(ConfigError) as told:
        read(url, key)
    return str(told.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (HERE, ServerAddress(False, "127.0.0.1", 8000)),
        ("https://rag.example.org", ServerAddress(True, "rag.example.org", 443)),
        ("HTTP://Rag.example.org/", ServerAddress(False, "rag.example.org", 80)),
        ("https://example.org:8443/rag/v1/", ServerAddress(True, "example.org", 8443, "/rag")),
        ("http://[::1]:8000/v1", ServerAddress(False, "::1", 8000)),
        ("http://[::1]", ServerAddress(False, "::1", 80)),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: ServerAddress) -> None:
    assert read(url) == expected
    assert read(expected.url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        "127.0.0.1:8000",
        f"ftp://example.org/{SECRET}",
        f"http:me:{SECRET}",
        "http://",
        "http://example.org:x",
        "http://example.org:0",
        "http://[::1",
        "http://a..b",
        f"http://{'a' * 64}.example.org",
        f"http://example.org/?api_key={SECRET}",
        f"http://example.org/#{SECRET}",
        "http://exa mple.org",
        "http://example.org/\r\nX: y",
        "http://example.org/\x00",
        "https://bücher.example",
    ],
)
def test_what_is_no_url_is_refused_and_not_repeated(url: str) -> None:
    told = refused(url)
    assert told.startswith("ITS_URL should be a URL such as ")
    assert SECRET not in told


@pytest.mark.parametrize(
    "url", [f"https://me:{SECRET}@example.org", f"http://:{SECRET}@localhost", "http://@localhost"]
)
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    assert refused(url) == "ITS_URL holds a name or a password: the key goes into ITS_KEY"


@pytest.mark.parametrize("url", [HERE, "http://[::1]:8000", "http://localhost:8000", "https://example.org"])
def test_a_key_goes_over_tls_or_within_the_machine(url: str) -> None:
    found = read(url, SECRET)
    assert found.key == SECRET
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    "url", ["http://example.org", "http://10.0.0.1:8000", "http://localhost.example.org", "http://0.0.0.0"]
)
def test_a_key_is_not_shown_to_a_network(url: str) -> None:
    told = refused(url, SECRET)
    assert "use https, or a tunnel" in told
    assert SECRET not in told
    assert read(url).key is None


@pytest.mark.parametrize(
    "key", [f"{SECRET}\r", f"{SECRET}\n", f"{SECRET} ", "two words", "a\r\nX-Header: b", "ключ", "x" * 5000, ""]
)
def test_what_is_no_key_is_refused_and_not_repeated(key: str) -> None:
    assert refused(HERE, key) == "ITS_KEY is no key: the server made one"
