"""From files to text with exact places.

    from app.loaders import load
    from app.loaders.base import ParseLimits

    parsed = load(Path("report.pdf"), ParseLimits())
    parsed.text[start:end], parsed.locate(start, end)

`load` is `parse` of what `read_file` gives: who hashes a file hashes exactly the bytes that it parses. The libraries
that read a format are imported when its first file comes.

Formats are told by suffix, and of some files that have none by name. A new one is a file here, a line in LOADERS, its
suffixes in FORMATS and a row in the tests.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import cast

from app.client.amounts import size
from app.errors import LoadError
from app.loaders.base import LONGEST_TITLE, Loader, Parsed, ParseLimits, SourceFile

# SQL stores neither NUL (PostgreSQL) nor half a character (UTF-8); JSON, HTML and PDF can write both.
UNSTORABLE = re.compile("[\0\ud800-\udfff]")
A_FOLDER = "is a folder, not a file: give the folder to ingest, which walks it"


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
    "odt": partial(_loader, "odt", "load_odt"),
    "ods": partial(_loader, "ods", "load_ods"),
    "odp": partial(_loader, "odp", "load_odp"),
    "rtf": partial(_loader, "rtf", "load_rtf"),
    "epub": partial(_loader, "epub", "load_epub"),
    "html": partial(_loader, "html", "load_html"),
    "markdown": partial(_loader, "text", "load_markdown"),
    "text": partial(_loader, "text", "load_text"),
    "code": partial(_loader, "text", "load_code"),
    "table": partial(_loader, "table", "load_table"),
    "notebook": partial(_loader, "notebook", "load_notebook"),
    "mail": partial(_loader, "mail", "load_mail"),
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
    "odt": (".odt", ".ott"),
    "ods": (".ods", ".ots"),
    "odp": (".odp", ".otp"),
    "rtf": (".rtf",),
    "epub": (".epub",),
    "html": (".html", ".htm", ".xhtml"),
    "notebook": (".ipynb",),
    "mail": (".eml",),
    "markdown": (".md", ".markdown", ".mdx", ".qmd", ".rmd"),
    "text": (".txt", ".text", ".log", ".rst", ".adoc", ".asciidoc", ".org", ".srt", ".vtt"),
    "table": (".csv", ".tsv", ".tab"),
    "json": (".json", ".geojson"),
    "jsonl": (".jsonl", ".ndjson"),
    "code": tuple(f".{name}" for name in CODE.split()),
}
SUFFIXES: Mapping[str, str] = MappingProxyType({suffix: name for name, all_of in FORMATS.items() for suffix in all_of})
# Of files that have no suffix, in small letters.
TEXTS = """
    readme license licence unlicense copying copyright changelog changes history news authors contributors contributing
    maintainers credits thanks acknowledgments acknowledgements notice patents install todo faq hacking
"""
PROGRAMS = """
    makefile gnumakefile dockerfile containerfile jenkinsfile vagrantfile rakefile gemfile procfile brewfile justfile
    podfile fastfile caddyfile tiltfile sconstruct sconscript kconfig kbuild
"""
LOUD = frozenset({"history", "install", "news"})  # texts in capitals only: programs name other files so
NAMES: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(TEXTS.split(), "text") | dict.fromkeys(PROGRAMS.split(), "code")
)
VARIANT = re.compile(r"[-_].*")  # LICENSE-MIT, README_de


def format_of(path: Path) -> str | None:
    """The name of the format that the suffix tells, or the name of a file that has none; or None."""
    if path.suffix:
        return SUFFIXES.get(path.suffix.lower())
    name = VARIANT.sub("", path.name)
    return None if name.lower() in LOUD and not name.isupper() else NAMES.get(name.lower())


def load(path: Path, limits: ParseLimits | None = None) -> Parsed:
    """The text of a file and where it stands. Raises LoadError, whatever the file holds."""
    limits = limits or ParseLimits()
    refuse_unknown(path)
    return parse(path, read_file(path, limits), limits)


def parse(path: Path, data: bytes, limits: ParseLimits | None = None) -> Parsed:
    """The text of a file whose bytes `read_file` has read. Raises LoadError."""
    name = refuse_unknown(path)
    source = SourceFile(path, data, limits or ParseLimits())
    parsed = LOADERS[name]()(source)
    source.expect_characters(len(parsed.text))
    if not parsed.text or parsed.text.isspace():
        raise LoadError(path, "holds no text: there is nothing to ingest")
    title = _storable(parsed.title)[:LONGEST_TITLE]
    return Parsed(_storable(parsed.text), parsed.kind, title, parsed.pages, parsed.lines)


def refuse_unknown(path: Path) -> str:
    """The name of the format. Raises LoadError for a name that tells none."""
    name = format_of(path)
    if name is None:
        raise LoadError(path, A_FOLDER) if path.is_dir() else unknown(path)
    return name


def unknown(path: Path) -> LoadError:
    """Of a name that tells no format; no file is looked at."""
    told = f"the suffix {path.suffix.lower()!r}" if path.suffix else "no suffix"
    known = ", ".join(suffixes[0] for suffixes in FORMATS.values())
    return LoadError(path, f"has {told}, which no loader reads: convert or rename it to one of {known} …")


def _storable(text: str) -> str:
    """One character for one, so that offsets stay."""
    return UNSTORABLE.sub("�", text)


def read_file(path: Path, limits: ParseLimits) -> bytes:
    """All of a regular file that is within the limit. Raises LoadError."""
    try:
        # Not to block: opening a named pipe would wait for someone to write to it.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            length = _length(path, os.fstat(fd), limits)
            data = file.read(length + 1)
    except OSError as error:
        raise LoadError(path, _reason(path, error)) from error
    if len(data) != length:
        raise LoadError(path, "changed while it was read: ingest it again when it is complete")
    if not data:
        raise LoadError(path, "is empty (0 bytes): there is nothing to ingest")
    return data


def _length(path: Path, told: os.stat_result, limits: ParseLimits) -> int:
    if stat.S_ISDIR(told.st_mode):
        raise LoadError(path, A_FOLDER)
    if not stat.S_ISREG(told.st_mode):
        raise LoadError(path, "is a pipe, socket or device, not a file: save what it gives to a file")
    if told.st_size > limits.max_bytes:
        raise LoadError(
            path,
            f"has {size(told.st_size)}, more than the limit of {size(limits.max_bytes)}: split it, or raise the limit",
        )
    return told.st_size


def _reason(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        if path.is_symlink():
            return "is a symbolic link to a file that does not exist: mend or remove the link"
        return "does not exist: it was removed, or its name is misspelt"
    if isinstance(error, PermissionError):
        return "may not be read by this user: change its permissions"
    if error.errno == errno.ELOOP:
        return "is a loop of symbolic links: remove the link"
    if isinstance(error, IsADirectoryError):
        return A_FOLDER
    return f"cannot be read ({error.strerror or error}): check the disk and its mount"
