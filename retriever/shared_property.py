"""A property that is made once, however many threads ask for it."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class _Cell(Generic[T]):
    """The value of one object, once it is made."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.values: list[T] = []  # none, or the one


class shared_property(Generic[T]):
    """Made at the first use and kept; whoever asks meanwhile waits for it. What raises is tried again at the next use.

    functools.cached_property is much the same, but since Python 3.12 two threads may both make the value.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        cell = self._cell(instance)
        if not cell.values:
            with cell.lock:
                if not cell.values:
                    cell.values.append(self._make(instance))
        return cell.values[0]

    def __set__(self, instance: object, value: T) -> None:
        """Give one that was made elsewhere."""
        cell = self._cell(instance)
        with cell.lock:
            cell.values[:] = [value]

    def __delete__(self, instance: object) -> None:
        """The next use makes it again."""
        vars(instance).pop(self._name, None)

    def peek(self, instance: object) -> T | None:
        """What was made already, as in `Models.language.peek(models)`: this neither makes it nor waits."""
        values = self._cell(instance).values
        return values[0] if values else None

    def _cell(self, instance: object) -> _Cell[T]:
        found: _Cell[T] | None = vars(instance).get(self._name)
        # `setdefault` is one step: all threads get the same cell.
        return vars(instance).setdefault(self._name, _Cell()) if found is None else found
