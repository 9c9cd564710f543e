"""How the source is cut, in figures: `make shape`. Compare them before and after a change of the structure."""

from __future__ import annotations

import io
import keyword
import re
import statistics
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations, groupby
from pathlib import Path

from tests.test_frame.sources import (
    PACKAGES,
    SOURCES,
    cycles,
    import_graph,
    imports_inside_functions,
    named,
    parsed,
    public_classes,
)

SHORT = 30  # a file below this joins its neighbour, unless a registry names it
ALIKE = 6  # lines of one shape that make a repeated place
COMMON = 8  # a shape that stands in more places is a habit of the language
# Lines that are alike wherever they stand: imports, fields, strings, decorators, heads of classes and initialisers.
PLAIN = re.compile(r"(import|from|class|@) .*|def name \( name , .*|name : [^=]*|value|name ,|(else|try|finally) :|\W*")
THIN = {tokenize.NEWLINE, tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

Line = tuple[int, str]  # its number and its shape


def shapes(source: str) -> list[Line]:
    """The lines that do something, with names, numbers and strings made alike."""
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in THIN]
    lines = []
    for number, group in groupby(tokens, key=lambda token: token.start[0]):
        shape = " ".join(_shape(token) for token in group)
        if not PLAIN.fullmatch(shape):
            lines.append((number, shape))
    return lines


def _shape(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return token.string if keyword.iskeyword(token.string) else "name"
    return "value" if token.type in (tokenize.NUMBER, tokenize.STRING) else token.string


def repeated(files: dict[str, list[Line]]) -> Iterator[tuple[str, int, str, int]]:
    """Pairs of places with ALIKE lines or more of one shape, each by its first lines."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, lines in files.items():
        for first in range(len(lines) - ALIKE + 1):
            places[tuple(shape for _, shape in lines[first : first + ALIKE])].append((name, first))
    pairs = {
        pair
        for found in places.values()
        if 1 < len(found) <= COMMON
        for pair in combinations(found, 2)
        if pair[0][0] != pair[1][0] or pair[1][1] - pair[0][1] >= ALIKE
    }
    for (left, at), (right, there) in sorted(pairs):
        if ((left, at - 1), (right, there - 1)) not in pairs:
            yield left, files[left][at][0], right, files[right][there][0]


def figures(sources: list[Path]) -> dict[str, object]:
    lengths = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources}
    names = Counter(name for path in sources for name in public_classes(path))
    largest = max(lengths, key=lambda name: lengths[name])
    return {
        "files": len(lengths),
        "lines": sum(lengths.values()),
        "median file": statistics.median(lengths.values()),
        "largest file": f"{lengths[largest]} ({largest})",
        f"files under {SHORT} lines": sum(length < SHORT for length in lengths.values()),
        "public names that stand twice": sum(count > 1 for count in names.values()),
        "imports inside functions": sum(imports_inside_functions(parsed(path)) for path in sources),
        "import cycles": len(cycles(import_graph(sources))),
        "pairs of repeated places": sum(
            1 for _ in repeated({named(path): shapes(path.read_text(encoding="utf-8")) for path in sources})
        ),
    }


def main() -> None:
    """A table with a row per figure, and a column per package and for all of them."""
    columns = {package: [path for path in SOURCES if named(path).startswith(f"{package}/")] for package in PACKAGES}
    found = {package: figures(sources) for package, sources in (columns | {"all": SOURCES}).items()}
    for figure in found["all"]:
        print(f"\n{figure}")
        for package, own in found.items():
            print(f"  {package:12}{own[figure]}")


if __name__ == "__main__":
    main()
