"""The project's source files, as the rules of the frame and `make shape` read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "benchmarks", "migrations", "ragcache", "retriever", "splitter", "ui")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module(path: Path) -> str:
    """As an import writes it."""
    return named(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def public_classes(path: Path) -> list[str]:
    return [node.name for node in parsed(path).body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def imports_at_start(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Those that run when the module is imported: not those of type checkers, nor those inside functions."""
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def imports_inside_functions(tree: ast.Module) -> int:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    inside = {id(one) for node in functions for one in ast.walk(node) if isinstance(one, ast.Import | ast.ImportFrom)}
    return len(inside)


def import_graph(sources: list[Path]) -> dict[str, set[str]]:
    """Which of the project's modules each one imports when it is imported itself."""
    modules = {module(path): path for path in sources}
    graph = {}
    for name, path in modules.items():
        found = set()
        for node in imports_at_start(parsed(path)):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            else:
                within = node.module or ""
                found.update(
                    whole if (whole := f"{within}.{alias.name}") in modules else within for alias in node.names
                )
        graph[name] = (found & modules.keys()) - {name}
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other in a ring."""
    reached = {name: _reachable(graph, name) for name in graph}
    rings = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in graph}
    return sorted(list(ring) for ring in rings if len(ring) > 1)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        waiting += graph[waiting.pop()] - seen - set(waiting)
        seen.update(waiting)
    return seen
