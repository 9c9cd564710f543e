"""No modules import each other in a circle, not even for type checkers alone or late, in functions: each can be read
before those that use it.
"""

from __future__ import annotations

import ast

from tests.test_frame.sources import SOURCES, cycles, import_graph, imports, imports_inside_functions, told


def test_imports_never_go_round() -> None:
    graph = import_graph(SOURCES)
    assert [told(ring, graph) for ring in cycles(graph)] == []


def test_a_circle_would_be_seen() -> None:
    graph = {"a": {"b": {"X"}}, "b": {"c": {"Y", "Z"}}, "c": {"b": {"itself"}}, "d": {"a": {"W"}}}
    assert cycles(graph) == [["b", "c"]]
    assert told(["b", "c"], graph) == ["b takes Y, Z from c", "c takes itself from b"]


def test_imports_are_seen_wherever_they_stand() -> None:
    code = """
import a.b.c
from a import b, One
if TYPE_CHECKING:
    from d import Two, Three
def late():
    from a.e import f
    import_module("g").run()
    import elsewhere
"""
    known = {"a", "a.b", "a.b.c", "a.e", "a.e.f", "d", "g"}
    assert imports(tree := ast.parse(code), known) == {
        "a": {"One"},
        "a.b": {"itself"},
        "a.b.c": {"itself"},
        "a.e.f": {"itself"},
        "d": {"Two", "Three"},
        "g": {"itself"},
    }
    assert imports_inside_functions(tree) == 2
