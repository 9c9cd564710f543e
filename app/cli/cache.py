"""`ragcache cache …`: the KV cache."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tqdm import tqdm

from app.cachecare import Census, CollectionShare, Pruned, bucket_tier, eviction, shares, take_census, tiers
from app.cachecare import prune as pruning
from app.cachecare import verify as check
from app.cli.explain import explain
from app.cli.flags import Json, configured
from app.cli.output import plain, print_json, table
from app.client.amounts import count, size
from app.compose import opened
from app.library.kv import FileTally
from app.library.pinning import pin_collection, unpin_collection
from app.settings import Settings, parse_bytes
from ragcache.errors import RemoteError
from ragcache.store.eviction import order_names
from ragcache.store.findings import TierStats

if TYPE_CHECKING:
    from app.cachecare.warming import WarmingProgress

cache = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)


@cache.callback()
def kv() -> None:
    """See, check, fill and clear the KV cache."""


@cache.command()
@configured(..., "model", "dtype", "data_dir", "cache_dir")
def stats(settings: Settings, as_json: Json = False) -> None:
    """Tell what is cached, for whom, and what for nobody."""
    orders = order_names(settings.eviction)
    with opened(settings, looking=True) as (library, models):
        census = take_census(library, models)
        of_collections, of_tiers = shares(library, models, census.live), tiers(settings, census)
    if settings.remote:
        try:
            of_bucket, all_told = bucket_tier(settings)
        except RemoteError as error:
            print(f"note: {error}", file=sys.stderr)
        else:
            of_tiers.append(of_bucket)
            if not all_told:
                print("note: the bucket holds more than could be listed in time", file=sys.stderr)
    if as_json:
        print_json(_stats_as_json(census, of_collections, of_tiers, orders))
    else:
        _tell_stats(census, of_collections, of_tiers, orders)


cache.command()(explain)


@cache.command()
@configured(..., "data_dir", "cache_dir")
def verify(settings: Settings, as_json: Json = False) -> None:
    """Read every byte and put aside what is bad; exit code 1 when something is."""
    with opened(settings, looking=True) as (library, models):
        found = check(library, models)
    if as_json:
        told = {"entries": found.entries, "bytes": found.nbytes, "flaws": [vars(flaw) for flaw in found.flaws]}
        print_json(told)
    else:
        for flaw in found.flaws:
            print(f"✗ {plain(flaw.where)}: {plain(flaw.reason)}")
        print(f"{count(found.entries, 'entry', 'entries')} read ({size(found.nbytes)}), {len(found.flaws):,} bad")
    if found.flaws:
        raise typer.Exit(1)


@cache.command()
@configured("collection", ..., "engine", "model", "device", "dtype", "data_dir", "cache_dir")
def warm(settings: Settings, as_json: Json = False) -> None:
    """Compute the KV that chunks of a collection lack; a run that was stopped goes on where it was."""
    from app.cachecare import warming  # it imports torch

    done = warming.WarmingProgress()
    with opened(settings) as (library, models):
        chosen = library.catalog.collections.get(settings.collection)
        chunks = library.catalog.collections.totals(chosen).chunks
        with tqdm(total=chunks, unit=" chunks", file=sys.stderr, disable=not sys.stderr.isatty()) as bar:
            for done in warming.warm(library, models, chosen):
                bar.update(done.chunks - bar.n)
    _tell_warm(done, chosen.name, as_json)
    if done.failed:
        raise typer.Exit(1)


@cache.command()
@configured("collection", ..., "model", "dtype", "data_dir", "cache_dir")
def evict(settings: Settings, as_json: Json = False) -> None:
    """Delete the KV of a collection that nobody else has; what is pinned stays. Answers compute what they lack."""
    with opened(settings) as (library, models):
        chosen = library.catalog.collections.get(settings.collection)
        _tell_kept(chosen.name, "evicted", eviction.evict(library, models, chosen), as_json)


@cache.command()
@configured("collection", ..., "model", "dtype", "data_dir", "cache_dir")
def pin(settings: Settings, as_json: Json = False) -> None:
    """Keep the KV that a collection has now from making room for other KV."""
    with opened(settings) as (library, models):
        chosen = library.catalog.collections.get(settings.collection)
        _tell_kept(chosen.name, "pinned", pin_collection(library, models, chosen), as_json)


@cache.command()
@configured("collection", ..., "data_dir", "cache_dir")
def unpin(settings: Settings, as_json: Json = False) -> None:
    """Let go of what `pin` keeps of a collection."""
    with opened(settings) as (library, models):
        chosen = library.catalog.collections.get(settings.collection)
        _tell_kept(chosen.name, "unpinned", unpin_collection(library, models, chosen), as_json)


@cache.command()
@configured(..., "model", "dtype", "data_dir", "cache_dir")
def prune(
    settings: Settings,
    all_engines: Annotated[
        bool,
        typer.Option(
            "--all-engines",
            help="Also all KV of other models and number formats, whatever collection has its chunks, of other system "
            "prompts, and of conversations.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    quarantine_days: Annotated[int, typer.Option(min=0, help="Bad files are kept so long.")] = 7,
    as_json: Json = False,
) -> None:
    """Delete KV that no chunk of any collection needs, leftovers of killed processes, and old bad files.

    Catalogs that share a cache folder lose KV to each other by it: those of one RAGCACHE_DATA_DIR are all it knows. So
    do clients of a vLLM server, whose chunks no collection has. A bucket keeps what it has.
    """
    age = timedelta(days=quarantine_days)
    with opened(settings, looking=dry_run) as (library, models):
        pruned = pruning(library, models, others=all_engines, dry=dry_run, quarantine_age=age)
    _tell_prune(pruned, as_json)


@cache.command()
@configured(..., "data_dir", "cache_dir")
def sizing(
    settings: Settings,
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Models, by their config.json; common ones by default."),
    ] = None,
    budget: Annotated[str, typer.Option(metavar="SIZE", help="How many tokens fit into it.")] = "32GiB",
    as_json: Json = False,
) -> None:
    """Tell how much KV a token of a model takes on the disk, by codec, and how many tokens a budget holds."""
    from app.cachecare import sizing  # it imports torch

    try:
        nbytes = int(str(parse_bytes(budget)))
    except ValueError as error:
        raise typer.BadParameter(f"{budget!r} {error}", param_hint="--budget") from None
    found = sizing.rows(sizing.sizes_of(folders) if folders else sizing.known_sizes(), nbytes)
    if as_json:
        print_json({"budget": nbytes, "models": found})
    else:
        _tell_sizing(found, budget)


def _stats_as_json(
    census: Census, of_collections: list[CollectionShare], tiers: list[TierStats], orders: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "tiers": [
            {"tier": one.tier, "entries": one.entries, "bytes": one.nbytes, "budget": one.budget}
            | {"order": orders[one.tier]}
            for one in tiers
        ],
        "collections": [
            {"name": one.collection.name, "chunks": one.chunks, "cached": one.cached, "pinned": one.pinned.nbytes}
            | _tally(one.kv)
            for one in of_collections
        ],
        "kinds": {name: _tally(tally) for name, tally in _kinds(census).items()},
    }


def _kinds(census: Census) -> dict[str, FileTally]:
    groups = {
        "referenced": census.live,
        "unreferenced": census.dead,
        "other_engines": census.other,
        "unreadable": census.unreadable,
    }
    return {name: FileTally.of(items) for name, items in groups.items()}


def _tally(tally: FileTally) -> dict[str, int]:
    return {"entries": tally.entries, "bytes": tally.nbytes}


def _tell_stats(
    census: Census, of_collections: list[CollectionShare], tiers: list[TierStats], orders: Mapping[str, str]
) -> None:
    budgets = ["no limit" if one.budget is None else size(one.budget) for one in tiers]
    held = [(f"{one.entries:,}", size(one.nbytes)) for one in tiers]
    rows = [(one.tier, *of, most, orders[one.tier]) for one, of, most in zip(tiers, held, budgets, strict=True)]
    print(table(("tier", "entries", "size", "budget", "eviction"), rows, right=("entries", "size", "budget")))
    shown = [
        (one.collection.name, f"{one.chunks:,}", f"{one.cached:,}", f"{one.kv.entries:,}", size(one.kv.nbytes))
        for one in of_collections
    ]
    if shown:
        titles = ("collection", "chunks", "cached", "entries", "size")
        print(f"\n{table(titles, shown, right=titles[1:])}")
    kinds = [
        (name.replace("_", " "), f"{tally.entries:,}", size(tally.nbytes)) for name, tally in _kinds(census).items()
    ]
    print(f"\n{table(('files', 'entries', 'size'), kinds, right=('entries', 'size'))}")


def _tell_sizing(found: list[dict[str, Any]], budget: str) -> None:
    sized, fitting = "_bytes_per_token", "_tokens"
    codecs = [name.removesuffix(sized) for name in found[0] if name.endswith(sized)]
    shown = [
        (
            *(one["model"], one["layers"], one["kv_heads"], one["head_dim"]),
            *(f"{one[codec + sized] / 1024:.1f}" for codec in codecs),
            *(f"{one[codec + fitting] / 1000:,.0f}" for codec in codecs),
        )
        for one in found
    ]
    titles = (
        "model",
        "layers",
        "KV heads",
        "head",
        *(f"{one} KiB" for one in codecs),
        *(f"{one} fit" for one in codecs),
    )
    print(table(titles, shown, right=titles[1:]))
    print(f"\nKiB: of KV for each token, on the disk. fit: thousands of tokens whose KV fits into {plain(budget)}.")


def _tell_kept(name: str, what: str, of: FileTally, as_json: bool) -> None:
    if as_json:
        print_json({"collection": name, what: _tally(of)})
    else:
        print(f"{plain(name)}: {count(of.entries, 'entry', 'entries')} {what} ({size(of.nbytes)})")


def _tell_warm(done: WarmingProgress, name: str, as_json: bool) -> None:
    if as_json:
        failed = [{"source": source, "reason": reason} for source, reason in done.failed]
        told = {"collection": name, "documents": done.documents, "chunks": done.chunks, "computed": done.computed}
        print_json(told | {"tokens": done.tokens, "bytes": done.nbytes, "failed": failed})
        return
    for source, reason in done.failed:
        print(f"✗ {plain(source)}: {plain(reason)}")
    print(
        f"{plain(name)}: {count(done.computed, 'KV variant')} computed ({count(done.tokens, 'token')}, "
        f"{size(done.nbytes)}) for {count(done.chunks, 'chunk')} of {count(done.documents, 'document')}"
    )


def _tell_prune(pruned: Pruned, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "dry_run": pruned.dry,
                "unreferenced": _tally(pruned.unreferenced),
                "other_engines": _tally(pruned.other),
                "temporaries": pruned.temporaries,
                "quarantined": pruned.quarantined,
            }
        )
        return
    rows = [
        ("unreferenced KV", f"{pruned.unreferenced.entries:,}", size(pruned.unreferenced.nbytes)),
        (
            "KV of others (--all-engines)",
            f"{pruned.other.entries:,}",
            size(pruned.other.nbytes),
        ),
        ("temporary files", f"{pruned.temporaries:,}", ""),
        ("quarantined files", f"{pruned.quarantined:,}", ""),
    ]
    print(table(("would be deleted" if pruned.dry else "deleted", "files", "size"), rows, right=("files", "size")))
