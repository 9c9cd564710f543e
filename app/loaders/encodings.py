"""From bytes to text: byte order marks first, then UTF-8, then what is declared, then a guess."""

from __future__ import annotations

import codecs
import logging
import re
from contextlib import suppress
from pathlib import Path
from unicodedata import category

from app.errors import LoadError, printable
from app.loaders.alphabets import FAMILIAR, by_likelihood
from app.loaders.base import ParseLimits, SourceFile
from app.loaders.soundness import refuse_binary

logger = logging.getLogger(__name__)

# UTF-32 first: in little endian its mark starts with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# What is declared so is read so by browsers: a larger set, which people mean.
MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
SAMPLE = 1 << 15
GUESSED = 1 << 13  # bytes: of what is not ASCII, and of what stands around it
BEFORE = 40
# Line ends, tabs, form feeds, the backspaces of old manuals and the escapes of terminal logs do occur in texts.
CONTROL = re.compile(r"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]")
MULTIBYTE = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
NOT_ASCII = re.compile(rb"[\x80-\xff][^\x00-\x20]*+[ -~]{0,40}+")
PRIVATE = re.compile("[\ue000-\uf8ff]")  # what pairs without a character are read as
REPLACED = "\ufffd"
JAPANESE_MAIL = re.compile(rb"\x1b\$[@B](?:[!-~]{2})++\x1b\([BJ]")  # ISO-2022-JP: pairs of ASCII between two escapes
XML = re.compile(rb"""<\?xml\s[^>]{0,200}?\sencoding\s*+=\s*+["']([\w.:-]{1,40}+)""")
# UTF-16 without a mark: the least bytes of it, and the shares of familiar characters in the order of the bytes that is
# right and in that which is wrong. Texts of 15 languages have .73 or more, and .05 or less.
LEAST_UTF16 = 8
SURE, UNLIKELY = 0.5, 0.25
NO_TEXT = ("Cc", "Cn", "Co", "Cs")  # categories of characters
WHITE = "\t\n\r\f\x1b\b"
CODE_PAGE = re.compile(r"\A(?:windows|cp|dos)-(\d{3,5})\Z")
ASCII = b"<meta> \\u0041 +AEE- ~"
BINARY = "looks binary, not text as its name says: convert it to text, or leave it out"


def decode(source: SourceFile, declared: str = "") -> str:
    """The text of a source; `declared` is the encoding that it names itself, where that is not XML's declaration.

    Raises LoadError for binary content.
    """
    refuse_binary(source)
    text = _marked(source)
    if text is None:
        if b"\0" in source.data:
            text = _utf16(source)
        else:
            xml = XML.match(source.data)
            text = _unmarked(source, declared or (xml[1].decode("ascii") if xml else ""))
    sample = text[:SAMPLE]
    if "\0" in text or len(CONTROL.findall(sample)) * 50 > len(sample):
        raise source.error(BINARY)
    return text


def is_binary(path: Path, head: bytes) -> bool:
    """Whether bytes at the start of a file prove that it is no text."""
    try:
        refuse_binary(SourceFile(path, head, ParseLimits()))
    except LoadError:
        return True
    is_marked = any(head.startswith(mark) for mark, _ in MARKS)
    orders = ("utf-16-le", "utf-16-be")
    return b"\0" in head and not is_marked and all(_familiar(head, encoding) < SURE for encoding in orders)


def _marked(source: SourceFile) -> str | None:
    for mark, encoding in MARKS:
        if source.data.startswith(mark):
            try:
                return source.data[len(mark) :].decode(encoding)
            except UnicodeDecodeError as error:
                raise source.error(
                    f"starts with the mark of {encoding.upper()} but byte {error.start + len(mark)} is none: "
                    "save it again as UTF-8"
                ) from error
    return None


def _utf16(source: SourceFile) -> str:
    """Without a mark, where one order of the bytes makes a text of them and the other none. Raises LoadError."""
    data = source.data
    if len(data) % 2 == 0 and len(data) >= LEAST_UTF16:
        shares = {encoding: _familiar(data, encoding) for encoding in ("utf-16-le", "utf-16-be")}
        encoding, other = sorted(shares, key=lambda one: -shares[one])
        if shares[encoding] >= SURE and shares[other] <= UNLIKELY:
            with suppress(UnicodeDecodeError):
                text = data.decode(encoding)
                logger.warning("%s tells no encoding: read as %s", printable(source.path), encoding.upper())
                return text
    raise source.error(BINARY)


def _familiar(data: bytes, encoding: str) -> float:
    """The share of the first characters that are frequent in some language; 0 where one of them is of no text."""
    sample = data[:SAMPLE].decode(encoding, "ignore")
    if any(category(char) in NO_TEXT and char not in WHITE for char in set(sample)):
        return 0
    return sum(char.lower() in FAMILIAR for char in sample) / len(sample) if sample else 0


def _unmarked(source: SourceFile, declared: str) -> str:
    data = source.data
    if data.isascii():
        mail = as_declared(data, "iso2022_jp_ext") if JAPANESE_MAIL.search(data) else None
        return as_declared(data, declared) or mail or data.decode("ascii")
    # No other encoding gives valid UTF-8 by chance: pages that were saved as it still declare what they were.
    text = whole_utf8(data)
    if text is None:
        text = as_declared(data, declared)
    if text is None:
        text = _damaged_utf8(source)
    return _guessed(source) if text is None else text


def whole_utf8(data: bytes) -> str | None:
    """Valid UTF-8; its last character may be cut."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        cut = error.reason == "unexpected end of data" and MULTIBYTE.search(data, 0, error.start)
    return data.decode("utf-8", "replace") if cut else None


def as_declared(data: bytes, encoding: str) -> str | None:
    """In the encoding of that name; None where it is none of texts, or not that of these bytes."""
    if (meant := meant_by(encoding)) is None:
        return None
    try:
        return data.decode(meant)
    except (ValueError, LookupError):  # it declares what it is not
        return None


def meant_by(declared: str) -> str | None:
    """The encoding that people mean by that name; None where it is none of texts."""
    try:
        name = codecs.lookup(CODE_PAGE.sub(r"cp\1", declared.lower().removeprefix("x-"))).name
        # The declaration was found in ASCII: codecs such as utf-16 and unicode_escape cannot be what it means.
        is_of_texts = name != "idna" and ASCII.decode(name) == ASCII.decode("ascii")  # that one is of names of hosts
        return MEANT.get(name, name) if is_of_texts else None
    except (ValueError, LookupError):
        return None


def _damaged_utf8(source: SourceFile) -> str | None:
    text = source.data.decode("utf-8", "replace")
    wrong = text.count(REPLACED) - source.data.count(REPLACED.encode())
    if sum(1 for _ in MULTIBYTE.finditer(source.data)) <= 2 * wrong:
        return None
    logger.warning("%s: %d places are not valid UTF-8 and read as U+FFFD", printable(source.path), wrong)
    return text


def _guessed(source: SourceFile) -> str:
    first, *others = by_likelihood(_foreign(source.data))
    encoding = first.encoding
    text = source.data.decode(encoding, "replace")
    wrong = text.count(REPLACED)
    if wrong > 1 + len(text) // 50:
        # That all bytes make pairs is no chance; of encodings with one byte a character, some take any bytes.
        wholes = ((one.encoding, as_declared(source.data, one.encoding)) for one in others if one.leads)
        fitting = ((one, whole) for one, whole in wholes if whole is not None and not PRIVATE.search(whole))
        encoding, text = next(fitting, ("", ""))
        if not encoding:
            raise source.error(BINARY)
        wrong = 0
    logger.warning(
        "%s is not UTF-8 and tells no encoding: read as %s, which its letters fit best (%d places read as U+FFFD)",
        printable(source.path),
        encoding,
        wrong,
    )
    return text


def _foreign(data: bytes) -> bytes:
    """The first pieces that hold bytes outside ASCII, with a little of what stands around them."""
    pieces, size, end = [], 0, 0
    for found in NOT_ASCII.finditer(data):
        start = max(end, found.start() - BEFORE)
        pieces += [b"\n" if start > end else b"", data[start : found.end()]]
        size += len(pieces[-1])
        end = found.end()
        if size >= GUESSED:
            break
    return b"".join(pieces)[:GUESSED]
