"""What a file plainly is, by its first bytes: names lie."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from io import BytesIO

from app.loaders.base import SourceFile


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
    (b"{\\rtf", Content("an RTF document")),
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
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError):
        return ARCHIVE
    return next((content for part, content in PARTS.items() if part in names), ARCHIVE)


def _opens_not(data: bytes) -> bool:
    """A damaged archive cannot tell what it is; its loader says what is wrong with it."""
    return not zipfile.is_zipfile(BytesIO(data))
