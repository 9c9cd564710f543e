"""What a file plainly is, by its first bytes: names lie; and whether it is sound.

What the libraries that read formats raise at a damaged file becomes one error for its reader. The archives of office
files and books are looked through before any library expands them.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from xml.etree.ElementTree import ParseError
from xml.parsers.expat import ExpatError

from app.client.amounts import size
from app.errors import LoadError
from app.loaders.base import SourceFile

# The libraries check little of what they read and fail in the middle of it, in every way there is. A bug of ours there
# would be told as damage too, with its type; so only calls of the libraries belong into the block.
DAMAGE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ExpatError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,  # of XML, in lxml and in ElementTree
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
MARKUP = (".xml", ".rels", ".vml", ".xhtml", ".html", ".htm", ".opf", ".ncx")
MOST_MEMBERS = 50_000
ENCRYPTED = 0x1
HEADER = struct.Struct("<26xHH")  # of a member: ends with the lengths of its name and of what programs add
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile expands a piece of the others to any size
AT_ONCE = 1 << 16  # bytes of a part, which deflate expands to 68 MB at most


@dataclass(frozen=True)
class Content:
    """What was recognised, and the suffix that a file of it should have; none where no loader reads it."""

    name: str
    suffix: str = ""


PDF = Content("a PDF document", ".pdf")
DOCX = Content("a Word document", ".docx")
PPTX = Content("a PowerPoint presentation", ".pptx")
XLSX = Content("an Excel workbook", ".xlsx")
EPUB = Content("an EPUB book", ".epub")
RTF = Content("an RTF document", ".rtf")
ODT = Content("an OpenDocument text", ".odt")
ODS = Content("an OpenDocument spreadsheet", ".ods")
ODP = Content("an OpenDocument presentation", ".odp")
HTML = Content("an HTML page", ".html")
# Office keeps its files of before 2007 in it, and today's when they have a password.
OLE = Content("an encrypted or pre-2007 Office file")
ARCHIVE = Content("a ZIP archive")
SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", Content("a PNG image")),
    (b"\xff\xd8\xff", Content("a JPEG image")),
    (b"II*\0", Content("a TIFF image")),
    (b"MM\0*", Content("a TIFF image")),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLE),
    (b"\x1f\x8b", Content("a gzip archive")),
    (b"\xfd7zXZ\0", Content("an xz archive")),
    (b"\x28\xb5\x2f\xfd", Content("a Zstandard archive")),
    (b"7z\xbc\xaf\x27\x1c", Content("a 7-Zip archive")),
    (b"Rar!\x1a\x07", Content("a RAR archive")),
    (b"\x7fELF", Content("a program")),
    (b"MZ\x90\0", Content("a program")),
    (b"SQLite format 3\0", Content("an SQLite database")),
    (b"{\\rtf", RTF),
    (b"%!PS-", Content("a PostScript file")),
)
# Words that a text may start with too: what follows them tells.
PATTERNS = (
    (re.compile(rb"GIF8[79]a.{0,6}[\0-\x08\x0e-\x1f]", re.S), Content("a GIF image")),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), Content("a bzip2 archive")),
    (re.compile(rb"OggS\0"), Content("an Ogg recording")),
    (re.compile(rb"ID3[\x02-\x04]"), Content("an MP3 recording")),
    (re.compile(rb"fLaC[\0\x80]"), Content("a FLAC recording")),
    (re.compile(rb"RIFF.{4}(?:WAVE|AVI |WEBP)", re.S), Content("a WAV, AVI or WebP file")),
)
# The part that tells what an archive is. Macro-enabled and template files have the same.
PARTS = {
    "word/document.xml": DOCX,
    "ppt/presentation.xml": PPTX,
    "xl/workbook.xml": XLSX,
    "META-INF/container.xml": EPUB,
}
# The others tell it by a text in a part of its own, or in the list of all of them.
TYPES_TOLD = ("mimetype", "META-INF/manifest.xml")
OPEN_DOCUMENT = re.compile(
    rb"application/vnd\.oasis\.opendocument\.(text|spreadsheet|presentation)(?:-template)?+(?![\w.-])"
)
BY_TYPE = {b"text": ODT, b"spreadsheet": ODS, b"presentation": ODP}
HTML_START = re.compile(
    rb"\s*+(?:<\?xml[^>]*+>\s*+)?+(?>(?:<!--.*?-->\s*+)*)<(?:!doctype\s++html|html|head|body)\b", re.I | re.S
)
HEAD = 1024  # a PDF may have this much before its signature


def sniff(data: bytes) -> Content | None:
    """What the bytes are, or None: text of some kind, or nothing known."""
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _archive(data)
    for signature, content in SIGNATURES:
        if data.startswith(signature):
            return content
    for pattern, content in PATTERNS:
        if pattern.match(data):
            return content
    head = data[:HEAD].removeprefix(b"\xef\xbb\xbf")
    if HTML_START.match(head):
        return HTML
    # The version distinguishes a PDF from a text about PDFs.
    return PDF if re.search(rb"(?:^|[\r\n\0])%PDF-\d", head) else None


def expect(source: SourceFile, wanted: Content) -> None:
    """Raises LoadError unless the source is what its name says; a damaged one of no known kind is let through."""
    found = sniff(source.data)
    if found == wanted or found is None or (found == ARCHIVE and _opens_not(source.data)):
        return
    if found == OLE:
        raise source.error(
            f"is {OLE.name}: open it in the program it was made with and save it without a password as {wanted.suffix}"
        )
    raise source.error(f"is {found.name}, not {wanted.name} as its name says: {_advice(found)}")


def refuse_binary(source: SourceFile) -> None:
    """Raises LoadError for what is known and no text."""
    found = sniff(source.data)
    shown = found == PDF and not source.data.startswith(b"%PDF-")  # a text that tells how PDFs start
    if found is not None and found != HTML and not shown:
        raise source.error(f"is {found.name}, not text as its name says: {_advice(found)}")


def _advice(found: Content) -> str:
    return f"rename it to end in {found.suffix}" if found.suffix else "convert it to a format that ingest reads"


def _archive(data: bytes) -> Content:
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = set(archive.namelist())
            told = (_open_document(archive, name) for name in TYPES_TOLD if name in names)
            by_type = next((content for content in told if content is not None), ARCHIVE)
    except DAMAGE:
        return ARCHIVE
    return next((content for part, content in PARTS.items() if part in names), by_type)


def _open_document(archive: zipfile.ZipFile, name: str) -> Content | None:
    """By what a part of this name says at its start; a damaged one says nothing."""
    if archive.getinfo(name).compress_type not in METHODS:
        return None
    try:
        with archive.open(name) as part:
            found = OPEN_DOCUMENT.search(part.read(AT_ONCE))
    except DAMAGE:
        return None
    return BY_TYPE[found[1]] if found else None


def _opens_not(data: bytes) -> bool:
    """A damaged archive cannot tell what it is; its loader says what is wrong with it."""
    return not zipfile.is_zipfile(BytesIO(data))


@contextmanager
def reading(source: SourceFile, what: str, *others: type[Exception]) -> Iterator[None]:
    """Errors of the block, and those of `others`, become a LoadError; `what` names the kind of file."""
    try:
        yield
    except LoadError:
        raise
    except RecursionError as error:
        raise source.error(f"nests its content too deep to be read as {what}: flatten it") from error
    except (*DAMAGE, *others) as error:
        if _lacked_memory(error):
            raise MemoryError from error
        raise source.error(
            f"is damaged or cut short and cannot be read as {what} ({type(error).__name__}: {error}): "
            "get the file again, or open it in its program and save it anew"
        ) from error


def _lacked_memory(error: Exception) -> bool:
    """Of the codes of expat, and of libxml2, which has none at all where it could not even note it."""
    code = getattr(error, "code", None)
    if isinstance(error, ExpatError | ParseError):
        return code == 1
    return type(error).__module__ == "lxml.etree" and code in (0, 2)


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
    for nbytes, limit, what in (
        (total, limits.max_expanded_bytes, "in all"),
        (markup, limits.max_xml_bytes, "of markup"),
    ):
        if nbytes > limit:
            raise source.error(
                f"expands to {size(nbytes)} {what}, more than the limit of {size(limit)}: "
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
