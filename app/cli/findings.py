"""What checks of an installation find: each finding says what it saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.settings import Settings
from ragcache.errors import RagcacheError


@dataclass(frozen=True)
class Finding:
    name: str
    ok: bool
    detail: str


Check = Callable[[Settings], Sequence[Finding]]


def examine(settings: Settings, checks: Sequence[Check]) -> list[Finding]:
    """All findings, in order; an error meant for users becomes a finding, and the checks after it still run."""
    found: list[Finding] = []
    for check in checks:
        try:
            found += check(settings)
        except RagcacheError as error:
            found.append(Finding(check.__name__.removeprefix("check_").replace("_", " "), False, str(error)))
    return found
