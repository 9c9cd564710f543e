"""Opening the archives that office files and books are, before any library expands them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

from app.loaders.base import MEGABYTE, Source
from app.loaders.damage import reading
from app.loaders.sniffing import Content, expect

MARKUP = (".xml", ".rels", ".vml", ".xhtml", ".html", ".htm", ".opf", ".ncx")
MOST_MEMBERS = 50_000
ENCRYPTED = 0x1


@contextmanager
def opened(source: Source, wanted: Content, streamed: bool = False) -> Iterator[zipfile.ZipFile]:
    """The archive, whose members may be expanded; what goes wrong in the block is told as damage.

    A format that is streamed is not read as a tree, and has no limit of its own for markup.
    """
    expect(source, wanted)
    with reading(source, wanted.name), zipfile.ZipFile(BytesIO(source.data)) as archive:
        _refuse_bombs(source, archive.infolist(), streamed)
        yield archive


def _refuse_bombs(source: Source, members: list[zipfile.ZipInfo], streamed: bool) -> None:
    """By the sizes that the archive tells: zipfile gives no byte more, and checks the sum of what it gives."""
    if any(member.flag_bits & ENCRYPTED for member in members):
        raise source.error("is encrypted: open it in its program and save it without a password")
    if len(members) > MOST_MEMBERS:
        raise source.error(f"holds {len(members):,} parts, more than {MOST_MEMBERS:,}: it is no document of any use")
    limits = source.limits
    total = sum(member.file_size for member in members)
    markup = sum(member.file_size for member in members if member.filename.lower().endswith(MARKUP))
    for size, limit, what in (
        (total, limits.max_expanded_bytes, "in all"),
        (0 if streamed else markup, limits.max_xml_bytes, "of markup"),
    ):
        if size > limit:
            raise source.error(
                f"expands to {size / MEGABYTE:,.1f} MB {what}, more than the limit of {limit / MEGABYTE:,.1f} MB: "
                "split it, or raise the limit if you trust it"
            )
