"""Opening the archives that office files and books are, before any library expands them."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

from app.loaders.base import MEGABYTE, SourceFile
from app.loaders.damage import reading
from app.loaders.sniffing import Content, expect

MARKUP = (".xml", ".rels", ".vml", ".xhtml", ".html", ".htm", ".opf", ".ncx")
MOST_MEMBERS = 50_000
ENCRYPTED = 0x1
HEADER = struct.Struct("<26xHH")  # of a member: ends with the lengths of its name and of what programs add


METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile expands a piece of the others to any size
AT_ONCE = 1 << 16  # bytes of a part, which deflate expands to 68 MB at most


@contextmanager
def opened(source: SourceFile, wanted: Content, streamed: tuple[str, ...] = ()) -> Iterator[zipfile.ZipFile]:
    """The archive, whose members may be expanded; what goes wrong in the block is told as damage.

    Members whose names start with one of `streamed` are not read as a tree, and have no limit of their own for markup.
    """
    expect(source, wanted)
    with reading(source, wanted.name), zipfile.ZipFile(BytesIO(source.data)) as archive:
        members = archive.infolist()
        _refuse_odd(source, members)
        _refuse_bombs(source, members, streamed)
        _refuse_lies(source, members)
        yield archive


def _refuse_odd(source: SourceFile, members: list[zipfile.ZipInfo]) -> None:
    if any(member.flag_bits & ENCRYPTED for member in members):
        raise source.error("is encrypted: open it in its program and save it without a password")
    if len(members) > MOST_MEMBERS:
        raise source.error(f"holds {len(members):,} parts, more than {MOST_MEMBERS:,}: it is no document of any use")
    if any(member.compress_type not in METHODS for member in members):
        raise source.error("is compressed in a way that no office program or book uses: save it anew in its program")


def _refuse_bombs(source: SourceFile, members: list[zipfile.ZipInfo], streamed: tuple[str, ...]) -> None:
    """By the sizes that the archive tells."""
    limits = source.limits
    total = sum(member.file_size for member in members)
    markup = sum(
        member.file_size
        for member in members
        if member.filename.lower().endswith(MARKUP) and not member.filename.startswith(streamed)
    )
    for size, limit, what in (
        (total, limits.max_expanded_bytes, "in all"),
        (markup, limits.max_xml_bytes, "of markup"),
    ):
        if size > limit:
            raise source.error(
                f"expands to {size / MEGABYTE:,.1f} MB {what}, more than the limit of {limit / MEGABYTE:,.1f} MB: "
                "split it, or raise the limit if you trust it"
            )


def _refuse_lies(source: SourceFile, members: list[zipfile.ZipInfo]) -> None:
    """zipfile gives no byte more than a member tells, but may expand 2 GB of it at a time before it cuts."""
    data = memoryview(source.data)
    if sum(member.compress_size for member in members) > len(data):
        raise source.error(
            "is damaged or forged, since its parts overlap: get the file again, or open it in its program and save it "
            "anew"
        )
    for member in members:
        if member.compress_type == zipfile.ZIP_STORED:
            continue
        # What precedes the content: a header of fixed length, the name, and what programs add.
        start = member.header_offset + HEADER.size + sum(HEADER.unpack_from(data, member.header_offset))
        inflated, expander = 0, zlib.decompressobj(-zlib.MAX_WBITS)
        for place in range(start, start + member.compress_size, AT_ONCE):
            inflated += len(expander.decompress(data[place : min(place + AT_ONCE, start + member.compress_size)]))
            if inflated > member.file_size:
                raise source.error(
                    "is damaged or forged, since a part of it is larger than it says: get the file again, or open it "
                    "in its program and save it anew"
                )
            if expander.eof:
                break  # what follows is kept by zlib, again with each piece
