"""One tree of errors, whose kinds a command line and a server tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from app.cli.output import LATER, exit_code, plain
from app.errors import (
    CatalogError,
    CollectionBusy,
    IngestError,
    LoadError,
    MaintenanceError,
    NotFound,
    can_be_shown,
    printable,
)
from ragcache.errors import ConfigError, CorruptEntry, ModelError, PromptError, RagcacheError, StoreError
from retriever import RetrieverError
from splitter import SplitterError


def kinds(root: type[RagcacheError]) -> Iterator[type[RagcacheError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_kind_is_in_the_tree() -> None:
    known = {CatalogError, IngestError, LoadError, MaintenanceError, ConfigError, PromptError, StoreError, ModelError}
    assert known | {RetrieverError, SplitterError, NotFound, CollectionBusy} <= set(kinds(RagcacheError))


@pytest.mark.parametrize("kind", sorted(kinds(RagcacheError), key=lambda kind: kind.__name__))
def test_every_kind_says_whose_it_is(kind: type[RagcacheError]) -> None:
    assert HTTPStatus(kind.status) >= HTTPStatus.BAD_REQUEST
    assert kind.status != RagcacheError.status, "a status of its own, or of a nearer base"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("no collection 'x'"), 404),
        (CollectionBusy("try again"), 409),
        (CatalogError("no database"), 503),
        (PromptError("too long"), 400),
        (CorruptEntry("torn"), 507),
    ],
)
def test_statuses(error: RagcacheError, status: int) -> None:
    assert error.status == status
    assert exit_code(error) == (LATER if status == 409 else 1)


def test_what_the_system_raises_is_a_plain_failure() -> None:
    assert exit_code(OSError("full")) == exit_code(MemoryError()) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("می\u200cخواهم क्\u200dष 👩\u200d🔬 Zu\u00adcker", "می\u200cخواهم क्\u200dष 👩\u200d🔬 Zu\u00adcker"),
        ("3.04\u202fPM 12\u00a0000 a\u3000b\u2009c", "3.04 PM 12 000 a b c"),
        ("a\u202eb\u2066c\u200fd\u061ce", r"a\u202eb\u2066c\u200fd\u061ce"),
        ("a\nb\t\x1b[31m\x9b\u2028\u200b\ufeff", r"a\nb\t\x1b[31m\x9b\u2028\u200b\ufeff"),
    ],
)
def test_what_is_ordinary_stands_as_it_is_and_what_a_terminal_obeys_as_an_escape(text: str, told: str) -> None:
    assert plain(text) == printable(Path(text)) == told
    assert can_be_shown(text) == ("\\" not in told)
