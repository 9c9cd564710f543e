"""Connections to databases across a fork, such as that of a server which loads the application before its workers."""

from __future__ import annotations

import os
from functools import cache
from typing import Protocol
from weakref import WeakSet


class Forking(Protocol):
    """What holds connections, none of which may get into a child."""

    def before_fork(self) -> None: ...

    def after_fork(self) -> None:
        """In the parent."""

    def after_fork_in_child(self) -> None: ...


def carry_over(one: Forking) -> None:
    """See to it that no connection of this one gets into a child."""
    _living().add(one)


@cache
def _living() -> WeakSet[Forking]:
    """Python never forgets what it was told to do at a fork, so it is told once, for all that live then."""
    living: WeakSet[Forking] = WeakSet()

    def before() -> None:
        for one in list(living):
            one.before_fork()

    def in_parent() -> None:
        for one in list(living):
            one.after_fork()

    def in_child() -> None:
        for one in list(living):
            one.after_fork_in_child()

    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
    return living
