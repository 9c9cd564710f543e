"""The command line. One file per command, which is imported when it is called, so help comes at once."""

from __future__ import annotations

import gc
import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, ClassVar

import typer

from app.cli.output import FAILURES, exit_code, told
from app.cli.table import CommandTable, Table


class Commands(CommandTable):
    table: ClassVar[Table] = {
        "doctor": ("app.cli.doctor", "Check that this installation can work."),
        "demo": ("app.cli.demo", "Ingest a small corpus, ask questions, and show what reuse saves."),
        "ingest": ("app.cli.ingest", "Read files into a collection; unchanged ones are skipped."),
        "ask": ("app.cli.ask", "Answer a question from the documents of a collection."),
        "chat": ("app.cli.chat", "Ask several questions after each other."),
        "ls": ("app.cli.ls", "List the collections, or the documents of one."),
        "show": ("app.cli.show", "Show a document with its chunks, and which of them have KV."),
        "rm": ("app.cli.rm", "Delete documents, or a whole collection."),
        "reindex": ("app.cli.reindex", "Build the indexes of a collection anew."),
        "bench": ("app.cli.bench", "Run a benchmark; each writes its figures as JSON."),
        "cache": ("app.cli.cache", "See, check, fill and clear the KV cache."),
        "db": ("app.cli.db", "Copy and restore the catalog; see and upgrade its schema."),
    }


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
        print(told(error), file=sys.stderr)
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
