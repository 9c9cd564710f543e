"""From bytes to text: byte order marks first, then UTF-8, then a guess."""

from __future__ import annotations

import codecs
import logging
import re

from app.loaders.base import Source
from app.loaders.errors import printable
from app.loaders.sniffing import refuse_binary

logger = logging.getLogger(__name__)

# UTF-32 first: in little endian its mark starts with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
SAMPLE = 1 << 15
# Line ends, tabs, form feeds, the backspaces of old manuals and the escapes of terminal logs do occur in texts.
CONTROL = re.compile(r"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]")
MULTIBYTE = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
NOT_ASCII = re.compile(r"[\x80-\xff]")
SIGN_IN_WORD = re.compile(r"(?<=[A-Za-z])[\xa1-\xb6\xb8-\xbf\xd7\xf7](?=[a-z])")
ASCII = b"<meta> \\u0041 +AEE- ~"
FEW = 8  # letters outside ASCII tell no language
BINARY = "looks binary, not text as its name says: convert it to text, or leave it out"


def decode(source: Source, declared: str = "") -> str:
    """The text of a source; `declared` is the encoding that it names itself. Raises LoadError for binary content."""
    refuse_binary(source)
    text = _marked(source)
    if text is None:
        if b"\0" in source.data:
            raise source.error(BINARY)
        text = _declared(source.data, declared)
    if text is None:
        text = _unmarked(source)
    sample = text[:SAMPLE]
    if "\0" in text or len(CONTROL.findall(sample)) * 50 > len(sample):
        raise source.error(BINARY)
    return text


def _marked(source: Source) -> str | None:
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


def _declared(data: bytes, encoding: str) -> str | None:
    if encoding.lower() in ("iso-8859-1", "latin-1", "latin1", "ascii", "us-ascii"):
        encoding = "cp1252"  # as browsers read it
    try:
        # The declaration was found in ASCII: codecs such as utf-16 and unicode_escape cannot be what it means.
        return data.decode(encoding) if encoding and ASCII.decode(encoding) == ASCII.decode("ascii") else None
    except (UnicodeError, LookupError):  # it declares what it is not
        return None


def _unmarked(source: Source) -> str:
    data = source.data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        first = error.start
    replaced = data.decode("utf-8", "replace")
    wrong = replaced.count("�")
    if sum(1 for _ in MULTIBYTE.finditer(data)) > 10 * wrong:  # UTF-8 with a few damaged bytes
        logger.warning("%s: %d places are not valid UTF-8 and read as U+FFFD", printable(source.path), wrong)
        return replaced
    return _guessed(data, first)


def _guessed(data: bytes, first: int) -> str:
    """A single-byte or Asian encoding, judged where the first byte stands that is no UTF-8."""
    sample = data[max(0, first - SAMPLE) : first + SAMPLE]
    for encoding in ("cp1252",) if _western(sample) else (_detected(sample), "cp1252"):
        try:
            return data.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return data.decode("latin-1")


def _western(sample: bytes) -> bool:
    """Whether it reads like a language of Latin-1: most bytes ASCII, and no signs inside words.

    The detector is asked after this, because it takes short Latin-1 for Central European or Chinese.
    """
    text = sample.decode("latin-1")
    foreign = len(NOT_ASCII.findall(text))
    return (foreign < FEW or foreign * 4 < len(text)) and len(SIGN_IN_WORD.findall(text)) * 20 <= foreign


def _detected(sample: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(sample).best()
    return best.encoding if best else "cp1252"
