"""Formats by suffix. A new one is a file here, a line in LOADERS, its suffixes in FORMATS and a row in the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import cast

from app.loaders.base import Loader


def _loader(module: str, function: str) -> Loader:
    """Imports the module, and with it what it reads the format with, when the first such file comes."""
    found: object = getattr(import_module(f"app.loaders.{module}"), function)
    assert callable(found), found
    return cast(Loader, found)


LOADERS: Mapping[str, Callable[[], Loader]] = {
    "pdf": partial(_loader, "pdf", "load_pdf"),
    "docx": partial(_loader, "docx", "load_docx"),
    "pptx": partial(_loader, "pptx", "load_pptx"),
    "xlsx": partial(_loader, "xlsx", "load_xlsx"),
    "epub": partial(_loader, "epub", "load_epub"),
    "html": partial(_loader, "html", "load_html"),
    "markdown": partial(_loader, "text", "load_markdown"),
    "text": partial(_loader, "text", "load_text"),
    "code": partial(_loader, "text", "load_code"),
    "table": partial(_loader, "table", "load_table"),
    "json": partial(_loader, "records", "load_json"),
    "jsonl": partial(_loader, "records", "load_jsonl"),
}
CODE = """
    py pyi pyx c h cc cpp cxx hpp hh hxx cu cuh m mm cs java kt kts scala groovy gradle clj cljs go rs swift dart
    js mjs cjs jsx ts mts cts tsx vue svelte css scss sass less php rb pl pm lua r jl hs lhs elm ml mli fs fsx ex exs
    erl hrl lisp cl el scm rkt zig nim v sv vhd vhdl asm s f f90 f95 for pas ada adb ads d sql graphql proto thrift
    sh bash zsh fish ps1 bat cmd awk sed tcl vim cmake mk make dockerfile tf hcl nix bzl toml yaml yml ini cfg conf
    properties xml xsd xsl xslt tex sty bib diff patch sol move wgsl glsl hlsl
"""
FORMATS: Mapping[str, tuple[str, ...]] = {
    "pdf": (".pdf",),
    "docx": (".docx", ".docm"),
    "pptx": (".pptx", ".pptm"),
    "xlsx": (".xlsx", ".xlsm"),
    "epub": (".epub",),
    "html": (".html", ".htm", ".xhtml"),
    "markdown": (".md", ".markdown", ".mdx", ".qmd", ".rmd"),
    "text": (".txt", ".text", ".log", ".rst", ".adoc", ".asciidoc", ".org", ".srt", ".vtt"),
    "table": (".csv", ".tsv", ".tab"),
    "json": (".json", ".geojson"),
    "jsonl": (".jsonl", ".ndjson"),
    "code": tuple(f".{name}" for name in CODE.split()),
}
SUFFIXES: Mapping[str, str] = MappingProxyType({suffix: name for name, all_of in FORMATS.items() for suffix in all_of})


def format_of(path: Path) -> str | None:
    """The name of the format that the suffix tells, or None."""
    return SUFFIXES.get(path.suffix.lower())
