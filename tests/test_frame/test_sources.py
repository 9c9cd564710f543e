"""Rules that every source file keeps: who imports whom, who reads the environment, how long things are."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_frame.shape import repeated, shapes
from tests.test_frame.sources import (
    PACKAGES,
    ROOT,
    SOURCES,
    TESTS,
    import_graph,
    module,
    named,
    parsed,
    public_classes,
)

# The direction: app → {ragcache, retriever, splitter}; errors have one root. The page knows a server's client alone.
# Benchmarks may use everything.
MAY_IMPORT = {
    "app": {"ragcache", "retriever", "splitter"},
    "benchmarks": {"app", "ragcache", "retriever", "splitter"},
    "migrations": {"app"},
    "ragcache": set(),
    "retriever": {"ragcache.errors"},
    "splitter": {"ragcache.errors"},
    "ui": {"app.client", "ragcache.errors"},
}
# `ragcache bench` hands over to the benchmarks, in a module that is imported when the command is called.
LAZY = {("app/cli/bench.py", "benchmarks")}
# What functions of these packages import: it takes long, and most commands or answers have no use for it.
AT_THE_TOP = ("app/", "retriever/", "splitter/")
SLOW = {"app.models.sentences", "alembic", "httpx2", "huggingface_hub", "readline", "tqdm", "vllm.platforms"}
SLOW |= {"app.models.loading", "app.models.chat_template", "app.models.gguf", "app.cli.engine_check", "app.prompt"}
SLOW |= {
    "app.chat.chat",
    "app.chat.rendering",
    "app.server.spans",
    "app.models.sampling",
    "app.ingestion.estimate",
    "app.library.catalog.source",
    "app.answering.calibration",
    "app.answering.divergence",
    "app.answering.soundness",
    "app.answering.targeting",
    "app.answering.pipeline",
    "app.settings",
}
SLOW |= {
    "ragcache.store.remote.bucket",
    "app.library.indexes",
    "app.library.searchers",
    "app.cachecare",
    "app.cachecare.warming",
    "retriever.sentence_model",
    "splitter.base",
}
SLOW |= {"ragcache.planning", "ragcache.store.lifting"}
SLOW |= {
    "splitter.units",
    "ragcache.engine.vllm.checks",
    "ragcache.engine.vllm.engine",
}
# Since Python 3.12 functools.cached_property may be made by two threads; here that is cheap and gives equal values.
MADE_TWICE_AT_WORST = {"benchmarks/retrieval/measurement.py", "benchmarks/search/data.py"}
MADE_TWICE_AT_WORST |= {"ragcache/engine/torch/decoder.py", "ragcache/store/format.py", "ragcache/types.py"}
MADE_TWICE_AT_WORST |= {"ragcache/loads.py", "splitter/base.py"}
LONGEST_FILE = 299
LONGEST_FUNCTION = 60


def imported(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """The modules of all imports, however deep in the code, and their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (package if node.level else node.module or ""), node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "import_module",
            "__import__",
        ):
            # The name may be put together at run time; what it starts with is written out.
            yield ast.unparse(node.args[0]).strip("f'\""), node.lineno


def top(name: str) -> str:
    return name.partition(".")[0]


def directions(path: Path, tree: ast.Module) -> list[str]:
    """Imports of the project's own packages that go the wrong way."""
    package = named(path).partition("/")[0]
    allowed = MAY_IMPORT[package] | {package} | {target for file, target in LAZY if file == named(path)}
    return [
        f"{named(path)}:{line} imports {target}"
        for target, line in imported(tree, package)
        if top(target) in PACKAGES and not {target, top(target), target.rpartition(".")[0]} & allowed
    ]


def environment_reads(tree: ast.Module) -> list[int]:
    """Lines that touch the environment, as os.environ or by a name imported from os."""
    lines = []
    for node in ast.walk(tree):
        named_here = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        attribute = [node.attr] if isinstance(node, ast.Attribute) else []
        if {"environ", "getenv", "putenv", "environb"} & {*named_here, *attribute}:
            lines.append(node.lineno)
    return lines


def broad_excepts(tree: ast.Module) -> list[int]:
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            names = {ast.unparse(one) if one else "BaseException" for one in caught}
            if names & {"Exception", "BaseException"}:
                lines.append(node.lineno)
    return lines


def cached_properties(tree: ast.Module) -> bool:
    nodes = list(ast.walk(tree))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return "cached_property" in imported | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def long_functions(tree: ast.Module) -> list[str]:
    return [
        f"{node.name} ({length} lines)"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
    ]


def test_imports_go_one_way() -> None:
    wrong = [line for path in SOURCES for line in directions(path, parsed(path))]
    assert wrong == []


def test_imports_stand_at_the_top_but_for_what_is_slow() -> None:
    late = {
        (named(path), target)
        for path in SOURCES
        if named(path).startswith(AT_THE_TOP)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for one in ast.walk(node)
        if isinstance(one, ast.Import | ast.ImportFrom)
        for target, _ in imported(one, "")
    }
    assert [(file, target) for file, target in sorted(late) if target not in SLOW] == []
    assert {target for _, target in late} == SLOW, "names that nobody imports late any more"


def test_ragcache_knows_nothing_of_llama_index() -> None:
    inside = [path for path in SOURCES if named(path).startswith("ragcache/")]
    known = [
        named(path)
        for path in inside
        if any(top(name) == "llama_index" for name, _ in imported(parsed(path), "ragcache"))
    ]
    assert known == []


def test_the_exceptions_to_the_direction_are_imported_by_nobody() -> None:
    """They are real, and no other module imports their file."""
    graph = import_graph(SOURCES)
    for file, target in LAZY:
        assert target in {top(name) for name, _ in imported(parsed(ROOT / file), "")}
        name = module(ROOT / file)
        assert [one for one, found in graph.items() if name in found] == []


def test_the_settings_alone_read_the_environment() -> None:
    readers = [named(path) for path in SOURCES if environment_reads(parsed(path))]
    # The client of a server has begun before the settings could be imported.
    assert readers == ["app/client/address.py", "app/settings.py"]


def test_no_broad_except() -> None:
    wrong = [f"{named(path)}:{line}" for path in SOURCES for line in broad_excepts(parsed(path))]
    assert wrong == []


def test_what_threads_share_is_made_once() -> None:
    """By retriever.shared_property, which has the lock that functools.cached_property lost."""
    assert {named(path) for path in SOURCES if cached_properties(parsed(path))} == MADE_TWICE_AT_WORST


def test_files_are_short() -> None:
    lengths = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES + TESTS}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_functions_are_short() -> None:
    wrong = [f"{named(path)}: {told}" for path in SOURCES + TESTS for told in long_functions(parsed(path))]
    assert wrong == []


def test_a_public_class_name_stands_once() -> None:
    named_so = [(name, named(path)) for path in SOURCES for name in public_classes(path)]
    counts = Counter(name for name, _ in named_so)
    assert [told for told in named_so if counts[told[0]] > 1] == []


def test_no_catch_all_module_names() -> None:
    names = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    assert [named(path) for path in SOURCES if path.stem in names or path.parent.name in names] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import app.settings", True),
        ("from app import settings", True),
        ("def f():\n    import retriever.index", True),
        ("import_module('splitter.fixed')", True),
        ("importlib.import_module(f'ui.{name}')", True),
        ("from ragcache.types import Span", False),
        ("from . import types", False),
        ("import application", False),
    ],
)
def test_a_wrong_direction_would_be_seen(code: str, found: bool) -> None:
    assert bool(directions(ROOT / "ragcache" / "x.py", ast.parse(code))) is found


@pytest.mark.parametrize(
    "code", ["import os\nos.environ['A']", "from os import getenv", "import os as o\no.getenv('A')"]
)
def test_a_read_of_the_environment_would_be_seen(code: str) -> None:
    assert environment_reads(ast.parse(code))


@pytest.mark.parametrize("caught", ["", " Exception", " (OSError, Exception)", " BaseException as e"])
def test_a_broad_except_would_be_seen(caught: str) -> None:
    assert broad_excepts(ast.parse(f"try:\n    pass\nexcept{caught}:\n    pass"))


@pytest.mark.parametrize("code", ["from functools import cached_property", "functools.cached_property(made)"])
def test_a_property_without_a_lock_would_be_seen(code: str) -> None:
    assert cached_properties(ast.parse(code))


def test_a_long_function_would_be_seen() -> None:
    body = "    pass\n" * LONGEST_FUNCTION
    assert long_functions(ast.parse(f"def f():\n{body}")) == ["f (61 lines)"]


def test_a_repeated_place_would_be_seen() -> None:
    steps = [f"x{number} = f({number}, 'text')" for number in range(6)]
    renamed = [f"  y{number} = g({number + 7}, 'other')" for number in range(6)]
    files = {"one": shapes("\n".join(["import os", "begin()", *steps])), "two": shapes("\n".join(["if z:", *renamed]))}
    assert list(repeated(files)) == [("one", 3, "two", 2)]
    assert list(repeated({"one": files["one"], "two": shapes("\n".join(steps[:5]))})) == []
