"""Databases across a fork, such as that of a server which loads the application before it starts its workers."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from app.catalog.engine import Database


def carry_over(database: Database) -> None:
    """See to it that no connection of this database gets into a child."""
    _living().add(database)


@cache
def _living() -> WeakSet[Database]:
    """Python never forgets what it was told to do at a fork, so it is told once, for all databases that live then."""
    living: WeakSet[Database] = WeakSet()

    def before() -> None:
        for database in list(living):
            database.before_fork()

    def in_parent() -> None:
        for database in list(living):
            database.after_fork()

    def in_child() -> None:
        for database in list(living):
            database.after_fork_in_child()

    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
    return living
