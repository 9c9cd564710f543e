"""From documents to chunks: splitters by name, plain or as llama-index node parsers (splitter/nodes.py), and node
parsers of llama-index by their import path (splitter/node_parser.py).

A new splitter is a file here, a line in SPLITTERS and a row in tests/splitter/test_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING

from splitter.spec import SplitterError as SplitterError
from splitter.spec import is_import_path as is_import_path
from splitter.spec import parse_spec as parse_spec
from splitter.spec import written

if TYPE_CHECKING:
    from splitter.base import ChunkLimits, Embed, Splitter, Tokens  # it imports numpy, and this page must not

    Factory = Callable[..., Splitter]


def _from(module: str, splitter: str) -> Callable[[], Factory]:
    """Imports the module when a splitter is made. Its settings are the parameters behind the limits."""

    def find() -> Factory:
        found: Factory = getattr(import_module(f"splitter.{module}"), splitter)
        return found

    return find


SPLITTERS: Mapping[str, Callable[[], Factory]] = {
    "auto": _from("fixed", "AutoSplitter"),
    "fixed": _from("fixed", "FixedSplitter"),
    "semantic": _from("semantic", "SemanticSplitter"),
    "structure": _from("structure", "StructureSplitter"),
}


def make_splitter(
    spec: str,
    tokens: Tokens,
    embed: Embed | None = None,
    limits: ChunkLimits | Mapping[str, int] | None = None,
    check: Callable[[], None] | None = None,
) -> Splitter:
    """`name` or `name:key=value,…` of SPLITTERS, or of a NodeParser by its import path (splitter/node_parser.py).
    `check` is called again and again while a text is split, which ends with what it raises.

    Raises SplitterError for what is none of these, and for `semantic` without an embedding.
    """
    from splitter.base import CheckedTokens, ChunkLimits, checked_embed

    if check is not None:
        tokens, embed = CheckedTokens(tokens, check), embed and checked_embed(embed, check)
    name, settings = parse_spec(spec)
    chosen = limits if isinstance(limits, ChunkLimits) else ChunkLimits(**limits or {})
    if is_import_path(name):
        made: Splitter = import_module("splitter.node_parser").NodeParserSplitter(name, settings, tokens, embed, chosen)
        return made
    if name not in SPLITTERS:
        path = "the import path of a NodeParser of llama-index"
        raise SplitterError(f"unknown splitter {name!r}: choose from {', '.join(SPLITTERS)}, or give {path}")
    make = SPLITTERS[name]()
    known = list(signature(make).parameters)[3:]
    for key, value in settings.items():
        if key not in known:
            choice = f"choose from {', '.join(known)}" if known else "it takes none"
            raise SplitterError(f"splitter {name!r} has no setting {key!r} (={written(value)}): {choice}")
    return make(tokens, embed, chosen, **{key: written(value) for key, value in settings.items()})
