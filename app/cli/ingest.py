"""`ragcache ingest`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from app.answering.pipeline import measure_answers
from app.cli.flags import Json, Splitter, configured, of_server
from app.cli.output import plain, print_json
from app.cli.served import SentFiles
from app.client.address import NamedServer
from app.client.amounts import count, size
from app.client.connection import ServerConnection
from app.compose import opened
from app.errors import IngestError
from app.ingestion import IngestOptions, IngestProgress, IngestResult
from app.ingestion.ingest import Ingest
from app.library import Library
from app.models import Models
from app.settings import Settings
from ragcache.errors import RagcacheError

PRUNE_ALL = "--prune-all"


class IngestCommand(TyperCommand):
    """An option takes a value always or never. `--prune` may have one: with it, it is another option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: typer has a copy of click of its own
        end = args.index("--") if "--" in args else len(args)
        given = [PRUNE_ALL if one == "--prune=all" else one for one in args[:end]]
        return super().parse_args(ctx, given + args[end:])


ingest = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def ingest_on_server(
    server: NamedServer, paths: list[Path], glob: list[str] | None, as_json: bool, **flags: Any
) -> None:
    """What was sent when it ends early is ingested all the same."""
    collection = of_server(server, flags, "collection").get("collection", server.collection)
    _check(paths)
    sent = SentFiles(ServerConnection(server), collection)
    try:
        sent.send(paths, glob or ())
    except KeyboardInterrupt:
        _tell(sent.result, as_json, "interrupted, but for what the server has by now: ")
        raise
    except RagcacheError:
        if sent.result.added or sent.result.replaced:
            _tell(sent.result, as_json, "stopped: ")
        raise
    _tell(sent.result, as_json)
    if sent.result.failed:
        raise typer.Exit(1)


@ingest.command(cls=IngestCommand)
@configured(
    *("collection", "splitter", "kv", ..., "server", "engine", "model", "device", "dtype", "data_dir", "cache_dir"),
    served=ingest_on_server,
)
def ingest_(
    settings: Settings,
    paths: Annotated[list[Path], typer.Argument(help="Files, and folders with all that is in them.")],
    splitter: Splitter = None,
    glob: Annotated[
        list[str] | None, typer.Option(help="In folders, only files like '*.md' or 'docs/**/*.pdf'.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that read files.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and cut files, tell how much it is.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Delete documents below PATHS whose files are gone.")] = False,
    prune_all: Annotated[
        bool, typer.Option(PRUNE_ALL, help="The same as --prune=all: also where nothing is left below a path.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Read files again that failed before.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="For another ingest into the same collection.")] = False,
    as_json: Json = False,
) -> None:
    """Read files into a collection; unchanged ones are skipped, changed ones replaced. Run it again at any time.

    Exit code 1 when a file could not be read; the others are in then.
    """
    pruning: bool | Literal["all"] = "all" if prune_all else prune
    options = IngestOptions(tuple(glob or ()), splitter, workers, None, pruning, retry_failed, dry_run, wait)
    settings = _without_ram(settings)
    with opened(settings, looking=dry_run) as (library, models):
        _run(library, models, paths, options, as_json)


def _run(library: Library, models: Models, paths: list[Path], options: IngestOptions, as_json: bool) -> None:
    _check(paths)
    name = library.settings.collection
    find = library.catalog.collections.find if options.dry_run else library.collection_or_new
    collection = find(name)
    with _bar() as report:
        run = Ingest(library, models, collection, options, report, lambda text: print(text, file=sys.stderr))
        try:
            run.run(paths)
        except KeyboardInterrupt:
            _tell(run.result, as_json, "interrupted: ")
            raise
        except RagcacheError:
            if run.result.added or run.result.replaced:
                _tell(run.result, as_json, "stopped: ")
            raise
    _tell(run.result, as_json)
    measure_answers(library, models, run.result)
    if run.result.failed:
        raise typer.Exit(1)


def _check(paths: list[Path]) -> None:
    if not any(path.exists() or path.is_symlink() for path in paths):
        raise IngestError(f"there is nothing at {', '.join(plain(str(path)) for path in paths)}: check the spelling")


def _without_ram(settings: Settings) -> Settings:
    """What is captured is read once more at most, by the chunks behind it; the disk does for that."""
    return settings.model_copy(update={"ram_bytes": 0}) if settings.disk_bytes else settings


@contextmanager
def _bar() -> Iterator[Callable[[IngestProgress], None] | None]:
    """On a terminal, by bytes: files differ too much for their number to tell the time that is left."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr, delay=0.5, leave=False) as bar:

        def report(progress: IngestProgress) -> None:
            bar.total = progress.of_nbytes
            failed = f", {progress.failed} failed" if progress.failed else ""
            bar.set_postfix_str(f"{progress.files:,} of {count(progress.of_files, 'file')}{failed}", refresh=False)
            bar.update(progress.nbytes - bar.n)

        yield report


def _tell(result: IngestResult, as_json: bool, state: str = "") -> None:
    """The summary to stdout; what went wrong, and what to know, to stderr."""
    for failure in result.failed:
        print(f"failed: {plain(failure.source)} {plain(failure.reason)}", file=sys.stderr)
    for note in result.notes:
        print(f"note: {plain(note)}", file=sys.stderr)
    if as_json:
        print_json(result.as_json())
        return
    parts = {name: getattr(result, name) for name in ("added", "replaced", "unchanged", "skipped", "pruned")}
    for source in result.gone if result.dry_run else ():
        print(f"would prune {plain(source)}")
    told = ", ".join(f"{name} {number:,}" for name, number in parts.items() if number or name != "skipped")
    kv = f", KV {size(result.kv_bytes)}" if result.kv_variants else ""
    seconds = f"{result.seconds:.1f} s"
    if result.dry_run:
        kv = f", KV {size(result.kv_disk_bytes)} on the disk" if result.kv_disk_bytes else ""
        seconds = _expected(result.expected_seconds if result.chunks else 0.0)  # what is unchanged takes none
    print(
        f"{state}{'would have ' if result.dry_run else ''}{told}, failed {len(result.failed):,} "
        f"({count(result.chunks, 'chunk')}, {count(result.tokens, 'token')}{kv}, {seconds})"
    )
    if result.ways:
        ways = sorted(result.ways.items(), key=lambda one: (-one[1], one[0]))
        print(f"cut: {', '.join(f'{number:,} {way}' for way, number in ways)}")


def _expected(seconds: float | None) -> str:
    if seconds is None:
        return "time unknown: nothing was ingested before"
    return f"about {seconds:,.0f} s" if seconds < 600 else f"about {seconds / 60:,.0f} min"
