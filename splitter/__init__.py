"""From documents to chunks: splitters by name, plain or as llama-index node parsers (splitter/nodes.py).

A new splitter is a file here, a line in SPLITTERS and a row in tests/splitter/test_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from ragcache.errors import RagcacheError

if TYPE_CHECKING:
    from splitter.base import ChunkLimits, Embed, Splitter, Tokens  # it imports numpy, and this page must not

    Factory = Callable[[Tokens, Embed | None, ChunkLimits], Splitter]


class SplitterError(RagcacheError, ValueError):
    """A setting that no text can be split with."""

    status = 400


def _from(module: str, splitter: str) -> Factory:
    """Imports the module when a splitter is made."""

    def make(tokens: Tokens, embed: Embed | None, limits: ChunkLimits) -> Splitter:
        made: Splitter = getattr(import_module(f"splitter.{module}"), splitter)(tokens, embed, limits)
        return made

    return make


SPLITTERS: Mapping[str, Factory] = {
    "auto": _from("fixed", "AutoSplitter"),
    "fixed": _from("fixed", "FixedSplitter"),
    "semantic": _from("semantic", "SemanticSplitter"),
    "structure": _from("structure", "StructureSplitter"),
}


def make_splitter(
    name: str, tokens: Tokens, embed: Embed | None = None, limits: ChunkLimits | Mapping[str, int] | None = None
) -> Splitter:
    """Raises SplitterError for a name that is not in SPLITTERS, and for `semantic` without an embedding."""
    if name not in SPLITTERS:
        raise SplitterError(f"unknown splitter {name!r}: choose from {', '.join(SPLITTERS)}")
    from splitter.base import ChunkLimits

    chosen = limits if isinstance(limits, ChunkLimits) else ChunkLimits(**limits or {})
    return SPLITTERS[name](tokens, embed, chosen)


# It stands here, where little is imported: whoever only reads files uses it too.
# What ends a line beside \n, and is one character: a lone carriage return, next line, line and paragraph separator.
ENDS = str.maketrans(dict.fromkeys("\r\x85\u2028\u2029", "\n"))


def lines_as_lf(text: str) -> str:
    r"""The text with \n alone at the ends of its lines, character for character, so that offsets stay."""
    return text if text.isascii() and "\r" not in text else text.replace("\r\n", " \n").translate(ENDS)
