"""EPUB books as Markdown: a page per chapter, in the order of reading."""

from __future__ import annotations

import logging
import posixpath
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from lxml import etree

from app.errors import LoadError, printable
from app.loaders.base import PagedText, Parsed, SourceFile
from app.loaders.html import page_of
from app.loaders.soundness import EPUB, opened
from app.loaders.text import first_heading

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
NO_TEXT = ("image/", "audio/", "video/", "font/")  # media types; some books give chapters odd ones
TOLD, LONGEST = 10, 80  # chapters at most in a warning, and characters of their names
logger = logging.getLogger(__name__)


def load_epub(source: SourceFile) -> Parsed:
    chapters = PagedText(source, "chapter")
    with opened(source, EPUB) as archive:
        package = _rootfile(source, archive)
        root = _xml(archive, package)
        locked = _encrypted(archive)
        missing: list[str] = []
        for number, name in enumerate(_spine(archive, root, posixpath.dirname(package), missing), start=1):
            if name in locked:
                raise source.error("is protected against copying (DRM): ask its seller for a copy that is not")
            chapters.add(number, _chapter(source, name, archive.read(name)))
        if missing:
            shown = ", ".join(map(repr, missing[:TOLD]))
            logger.warning("%s: %d chapters are not in the book: %s", printable(source.path), len(missing), shown)
        title = next((" ".join(found.split()) for found in _texts(root, "title")), "")
    parsed = chapters.parsed("markdown", "")
    return Parsed(parsed.text, parsed.kind, title or first_heading(parsed.text) or source.name, parsed.pages)


def _chapter(source: SourceFile, name: str, data: bytes) -> str:
    """Its Markdown. One that cannot be read costs itself, and not the book."""
    try:
        return page_of(SourceFile(source.path, data, source.limits))[0] if data else ""
    except LoadError as error:
        logger.warning("%s: the chapter %r is left out: it %s", printable(source.path), name, error.reason)
        return ""


def _rootfile(source: SourceFile, archive: ZipFile) -> str:
    found = _all(_xml(archive, CONTAINER), "rootfile")
    if not found:
        raise source.error("names no package in its container: it is no complete EPUB, get it again")
    return str(found[0].get("full-path", ""))


def _spine(archive: ZipFile, root: Any, folder: str, missing: list[str]) -> Iterator[str]:
    """Members of the archive that are read one after another, each once; the table of contents is none of them.

    Those that are not there come into `missing`.
    """
    items = {item.get("id"): item for item in _all(root, "item")}
    names, alike, read = set(archive.namelist()), _alike(archive), set()
    seen: set[str | None] = set()
    for reference in _all(root, "itemref"):
        item = _text_of(items, reference.get("idref"), seen)
        if item is None or "nav" in item.get("properties", "").split():
            continue
        href = item.get("href", "")
        # The names are escaped as in addresses, and some programs forget that.
        written = [posixpath.normpath(posixpath.join(folder, one)) for one in (unquote(href), href)]
        found = next((name for name in written if name in names), "")
        found = found or next((alike[name.casefold()] for name in written if name.casefold() in alike), "")
        if not found:
            missing.append(written[0][:LONGEST])
        elif found not in read:
            read.add(found)
            yield found


def _alike(archive: ZipFile) -> dict[str, str]:
    """Names of members by how they are spelt without regard to case, where that is of one alone."""
    names = set(archive.namelist())
    number = Counter(map(str.casefold, names))
    return {name.casefold(): name for name in names if number[name.casefold()] == 1}


def _text_of(items: dict[str | None, Any], key: str | None, seen: set[str | None]) -> Any | None:
    """The item, or what the book gives for readers that cannot show it; None where this was looked for before."""
    while key in items and key not in seen:
        seen.add(key)
        item = items[key]
        if not item.get("media-type", "").startswith(NO_TEXT):
            return item
        key = item.get("fallback")
    return None


def _encrypted(archive: ZipFile) -> set[str]:
    """Fonts often are, which does not matter; chapters of protected books are too."""
    if ENCRYPTION not in archive.namelist():
        return set()
    return {unquote(found.get("URI", "")) for found in _all(_xml(archive, ENCRYPTION), "CipherReference")}


def _xml(archive: ZipFile, name: str) -> Any:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    return etree.fromstring(archive.read(name), parser)


def _all(root: Any, tag: str) -> list[Any]:
    """Elements of a local name, in any namespace: books use several, and some none."""
    return list(root.iter(f"{{*}}{tag}"))


def _texts(root: Any, tag: str) -> Iterator[str]:
    return (text for found in _all(root, tag) if (text := "".join(found.itertext()).strip()))
