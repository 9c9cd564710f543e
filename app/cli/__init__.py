"""The command line. One file per command; what is heavy is imported inside the commands, so help comes at once."""

from __future__ import annotations

import gc
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from app.cli.ask import ask
from app.cli.bench import bench
from app.cli.cache import cache
from app.cli.chat import chat
from app.cli.db import db
from app.cli.demo import demo
from app.cli.doctor import doctor
from app.cli.ingest import IngestCommand, ingest
from app.cli.ls import ls
from app.cli.printing import FAILURES, exit_code, told
from app.cli.reindex import reindex
from app.cli.rm import rm
from app.cli.show import show

cli = typer.Typer(
    name="ragcache", add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)
cli.command()(doctor)
cli.command()(demo)
cli.command(cls=IngestCommand)(ingest)
cli.command()(ask)
cli.command()(chat)
cli.command()(ls)
cli.command()(show)
cli.command()(rm)
cli.command()(reindex)
cli.add_typer(bench, name="bench")
cli.add_typer(cache, name="cache")
cli.add_typer(db, name="db")


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
        from importlib.metadata import version

        print(f"ragcache {version('ragcache-kv')}")
        raise typer.Exit


@cli.callback()
def ragcache(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Question answering over documents whose chunks carry their KV caches."""
