"""The command line. One file per command, which is imported when it is called: to list them takes none."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from app.cli.output import FAILURES, error_line, exit_code


class Commands(TyperGroup):
    """Typer's own groups import all of their commands to list them.

    Here a table has their names, each with a line of help. The module of that name has the command under it too, a
    function or a Typer.
    """

    table: ClassVar[Mapping[str, str]] = {
        "doctor": "Check that this installation can work.",
        "demo": "Ingest a small corpus, ask questions, and show what reuse saves.",
        "ingest": "Read files into a collection; unchanged ones are skipped.",
        "ask": "Answer a question from the documents of a collection.",
        "chat": "Ask several questions after each other.",
        "serve": "Serve the collections by OpenAI's API.",
        "ui": "Open the chat in the browser, with a server where none runs.",
        "ls": "List the collections, or the documents of one.",
        "show": "Show a document: what it is, its chunks, and which have KV.",
        "rm": "Delete documents, or a whole collection.",
        "reindex": "Build the indexes of a collection anew.",
        "tune": "Learn how much meaning and words count in the search of a collection.",
        "bench": "Run a benchmark; each writes its figures as JSON.",
        "cache": "See, check, fill and clear the KV cache.",
        "keys": "Make, list and revoke the keys of those who ask a server.",
        "db": "Copy and restore the catalog; see and upgrade its schema.",
    }

    def __init__(self, **attributes: Any):
        super().__init__(**attributes | {"commands": _Imported(self.table)})

    def list_commands(self, ctx: Any) -> list[str]:  # Any: typer has a copy of click of its own
        return list(self.table)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*self.table.items()])


class _Imported(Mapping[str, Any]):
    """Commands by name, each made when it is asked for."""

    def __init__(self, table: Mapping[str, str]):
        self._table = table

    def __getitem__(self, name: str) -> Any:
        if name not in self._table:
            raise KeyError(name)
        found = getattr(import_module(f"{__name__}.{name}"), name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            alone.command()(found)
            found = alone
        return typer.main.get_command(found)

    def get(self, name: str, default: Any = None) -> Any:
        """Errors while a command is imported are no sign that there is none."""
        return self[name] if name in self._table else default

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


cli = typer.Typer(
    name="ragcache",
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


# Objects that are made before Python looks for rings among them: at its own 700 it looks through the modules that a
# command imports hundreds of times, which takes a tenth of the command's time.
YOUNG = 50_000


def main() -> None:
    """Entry point. Errors meant for users are one line and exit code 1, or 75 where somebody else is at work on a
    collection; a wrong command line is 2; Ctrl-C is 130.
    """
    gc.set_threshold(YOUNG)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal or a pipe of an old encoding gets escapes
            stream.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="ragcache")
    except FAILURES as error:
        print(error_line(error), file=sys.stderr)
        sys.exit(exit_code(error))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ragcache {version('ragcache-kv')}")
        raise typer.Exit


@cli.callback()
def ragcache(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Question answering over documents whose chunks carry their KV caches."""
