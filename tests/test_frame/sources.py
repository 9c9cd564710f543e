"""The project's source files, as the rules of the frame and `make shape` read them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "benchmarks", "migrations", "ragcache", "retriever", "splitter", "ui")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
ITSELF = "itself"  # of a module that is imported whole
Taken = Mapping[str, set[str]]  # names, by the module that they are taken from
Graph = Mapping[str, Taken]  # by the module that takes them


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module(path: Path) -> str:
    """As an import writes it."""
    return named(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def public_classes(path: Path) -> list[str]:
    return [node.name for node in parsed(path).body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def imports_inside_functions(tree: ast.Module) -> int:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    inside = {id(one) for node in functions for one in ast.walk(node) if isinstance(one, ast.Import | ast.ImportFrom)}
    return len(inside)


def imports(tree: ast.Module, modules: Collection[str]) -> Taken:
    """What is taken from which of the modules, wherever it is imported: for type checkers alone and in functions too.

    Of `from package import name` it is the module of that name, where there is one, else the name from the package.
    """
    taken: defaultdict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                taken[alias.name].add(ITSELF)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name modules in full"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                taken[whole if whole in modules else node.module or ""].add(ITSELF if whole in modules else alias.name)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "import_module":
            taken[ast.unparse(node.args[0]).strip("'")].add(ITSELF)
    return {name: names for name, names in taken.items() if name in modules}


def import_graph(sources: list[Path]) -> Graph:
    """Of each of the project's modules what it takes from which others."""
    modules = {module(path): path for path in sources}
    graph = {name: imports(parsed(path), modules) for name, path in modules.items()}
    return {name: {other: names for other, names in taken.items() if other != name} for name, taken in graph.items()}


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of modules that import each other in a ring."""
    reached = {name: _reachable(graph, name) for name in graph}
    rings = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in graph}
    return sorted(list(ring) for ring in rings if len(ring) > 1)


def told(ring: list[str], graph: Graph) -> list[str]:
    """Who takes what from whom within it."""
    return [
        f"{name} takes {', '.join(sorted(names))} from {other}"
        for name in ring
        for other, names in graph[name].items()
        if other in ring
    ]


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        waiting += graph[waiting.pop()].keys() - seen - set(waiting)
        seen.update(waiting)
    return seen
