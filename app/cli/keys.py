"""`ragcache keys …`: who may ask a server."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from app.cli.flags import DataDir, Json, configure
from app.cli.output import fields, plain, print_json, table
from app.client.amounts import size
from app.library.catalog import catalog_to_look_at, open_catalog
from app.library.catalog.serving_records import SCOPES, Key, KeyLimits, Scope
from app.library.catalog.tables import now
from app.settings import parse_bytes

_AGE = re.compile(r"([1-9]\d{0,4})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_TIME = "%Y-%m-%d %H:%M"

keys = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)


@keys.callback()
def of_server() -> None:
    """Make, list and revoke the keys of those who ask a server."""


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose it is, or what for.", show_default=False)],
    scope: Annotated[
        list[str] | None, typer.Option(help="What it may do: read, ingest or admin, and again for more. Else: read.")
    ] = None,
    collection: Annotated[
        list[str] | None, typer.Option("--collection", "-c", help="Only in this one, and again for more.")
    ] = None,
    expires: Annotated[str | None, typer.Option(metavar="AGE", help="Good for so long: 12h, 90d or 52w.")] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Requests per minute.")] = None,
    concurrent: Annotated[int | None, typer.Option(min=1, help="Requests at a time.")] = None,
    documents: Annotated[int | None, typer.Option(min=0, help="Documents that it may bring.")] = None,
    nbytes: Annotated[str | None, typer.Option("--bytes", metavar="SIZE", help="How much these may be.")] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Make a key. It alone is printed on stdout, this once: only a digest of it is kept."""
    scopes = [_scope(one) for one in scope or ["read"]]
    until = None if expires is None else now() + _age(expires)
    limits = KeyLimits(rate, concurrent, documents, None if nbytes is None else _size(nbytes))
    with open_catalog(configure(data_dir=data_dir)) as catalog:
        only = None if collection is None else [catalog.collections.get(one) for one in collection]
        key, secret = catalog.keys.create(name, scopes, collections=only, limits=limits, expires=until)
        names = {one.id: one.name for one in only or ()}
    if as_json:
        print_json(_as_json(key, names) | {"key": secret})
        return
    ending = "" if key.expires is None else f", until {key.expires:{_TIME}} UTC"
    told = f"key {key.id} of {plain(key.name)}: {_scopes(key)} in {_collections(key, names)}{ending}; it is shown once:"
    print(told, file=sys.stderr, flush=True)
    print(secret)


@keys.command("list")
def list_(as_json: Json = False, data_dir: DataDir = None) -> None:
    """List the keys, without their secrets, which nobody has."""
    with catalog_to_look_at(configure(data_dir=data_dir)) as catalog:
        found = catalog.keys.all()
        names = {one.id: one.name for one in catalog.collections.all()}
    if as_json:
        print_json({"keys": [_as_json(key, names) for key in found]})
    elif not found:
        print("no keys yet: `ragcache keys create NAME` makes one")
    else:
        titles = ("id", "name", "may", "collections", "limits", "made", "last used", "expires", "state")
        print(table(titles, [_row(key, names) for key in found]))


@keys.command()
def revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="As `ragcache keys list` has it, or the key itself.", show_default=False)
    ],
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Make a key good for nothing, for ever; servers that run heed it within half a minute."""
    with open_catalog(configure(data_dir=data_dir)) as catalog:
        key = catalog.keys.revoke(key_id.removeprefix("rk-").partition("-")[0])
        names = {one.id: one.name for one in catalog.collections.all()}
    if as_json:
        print_json(_as_json(key, names))
    else:
        print(f"key {key.id} of {plain(key.name)} is revoked")


def _scope(text: str) -> Scope:
    found: list[Scope] = [one for one in SCOPES if one == text]
    if not found:
        raise typer.BadParameter(f"{text!r} is no scope: choose from {', '.join(SCOPES)}", param_hint="--scope")
    return found[0]


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age: write 12h, 90d or 52w", param_hint="--expires")
    return int(found[1]) * _UNITS[found[2]]


def _size(text: str) -> int:
    try:
        return int(str(parse_bytes(text)))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint="--bytes") from None


def _as_json(key: Key, names: Mapping[int, str]) -> dict[str, Any]:
    times = {name: getattr(key, name) for name in ("created", "last_used", "revoked", "expires")}
    return {
        **fields(key, "id", "name"),
        "scopes": sorted(key.scopes),
        "collections": None if key.collections is None else _named(key.collections, names),
        "limits": {_limit: value for _limit, value in vars(key.limits).items() if value is not None},
        **{name: None if moment is None else moment.isoformat() for name, moment in times.items()},
        "state": _state(key),
    }


def _row(key: Key, names: Mapping[int, str]) -> Sequence[str]:
    return (
        *(key.id, key.name, _scopes(key), _collections(key, names), _limits(key.limits)),
        *(_time(key.created), _time(key.last_used), _time(key.expires)),
        _state(key),
    )


def _scopes(key: Key) -> str:
    return ", ".join(sorted(key.scopes))


def _collections(key: Key, names: Mapping[int, str]) -> str:
    if key.collections is None:
        return "all collections"
    return ", ".join(plain(one) for one in _named(key.collections, names)) or "none that is left"


def _named(ids: frozenset[int], names: Mapping[int, str]) -> list[str]:
    """Those that are there."""
    return sorted(names[one] for one in ids if one in names)


def _limits(limits: KeyLimits) -> str:
    told = {
        "{} a minute": limits.requests_per_minute,
        "{} at a time": limits.concurrent,
        "{} documents": limits.documents,
        "{}": None if limits.nbytes is None else size(limits.nbytes),
    }
    return ", ".join(words.format(value) for words, value in told.items() if value is not None) or "none"


def _time(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment:{_TIME}}"


def _state(key: Key) -> str:
    if key.revoked is not None:
        return "revoked"
    return "good" if key.valid(now()) else "expired"
