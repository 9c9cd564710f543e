"""Commands that are imported when they are called: a table tells their names, where they are and what they do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

# By name: the module that has the command under this name, a function or a Typer, and a line of help.
Table = Mapping[str, tuple[str, str]]


class CommandTable(TyperGroup):
    """Typer's own groups import all of their commands to list them, and to complete their names."""

    table: ClassVar[Table]

    def __init__(self, **attributes: Any):
        super().__init__(**attributes | {"commands": _Imported(self.table)})

    def list_commands(self, ctx: Any) -> list[str]:  # Any: typer has a copy of click of its own
        return list(self.table)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, told) in self.table.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from typer._click.shell_completion import CompletionItem  # a private module: nothing else hangs on it

        names = [CompletionItem(name, help=told) for name, (_, told) in self.table.items()]
        options = super(TyperGroup, self).shell_complete(ctx, incomplete)
        return [one for one in names if one.value.startswith(incomplete)] + options


class _Imported(Mapping[str, Any]):
    """Commands by name, each made when it is asked for."""

    def __init__(self, table: Table):
        self._table = table

    def __getitem__(self, name: str) -> Any:
        module, _ = self._table[name]
        found = getattr(import_module(module), name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            alone.command()(found)
            found = alone
        return typer.main.get_command(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)
