"""Files as they may come from anybody: sound ones with a few things changed, by bytes and by what the format means."""

from __future__ import annotations

import re
import struct
import threading
import warnings
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from lzma import LZMAError
from random import Random

from app.loaders.soundness import DAMAGE

Change = Callable[[Random, bytes], bytes]

ARCHIVES = ("docx", "pptx", "xlsx", "epub", "odt", "ods", "odp")
NUMBERS = ("0", "-1", "1", "255", "65536", "2147483647", "4294967296", "99999999999999999999", "1e309", "NaN", "0x41")
WORDS = (
    *NUMBERS, "", " ", "x" * 5_000, "../../etc/passwd", "http://example.org/", "rId1", "rId2", "\0", "\ud7ff", "\u2028",
    "&amp;", "&x;", "%s", "A1", "XFD1048576", "true", "word/document.xml", "utf-16", "{}",
)  # fmt: skip
# What loaders and splitters look for, whole and broken.
MARKS = (
    "# ", "#" * 7, "~~~", "```", "| a |", "|", "\n---\n", "===", "= = ", "<h1>", "</h1", "<pre>", "<table><tr><td>",
    "<!--", "-->", "<br>", "<li>", "<ol>", "<blockquote>", "<title>", "&nbsp;", "User: ", "{'role': ", "12:30 <a> ",
    '"', "'", ",", ";", "\t", "[", "{", "]", "}", ":", "\\n", "\n", "\r", "\r\n", "\f", "\u2028", "\x85", " ", ".",
    "Question", "...", "e.g. ", "。", "」", "\u0301", "\u202e", "\ufeff", "𝄞", "\ud7ff", "x", "1. ", "- ", "\\",
    "%PDF-1.7", "PK\x03\x04",
)  # fmt: skip
TAG = re.compile(rb"<[^<>]{1,2000}>")
VALUE = re.compile(rb'(?<==)"[^"<>]{0,2000}"')
CONTROL = re.compile(rb"\\[a-z]{1,32}-?\d{0,10} ?|\\[^a-z]|[{}]")
PDF_NUMBER = re.compile(rb"(?<=[ /\[<])\d{1,10}(?=[ /\]>\r\n])")


def mutated(rng: Random, name: str, data: bytes) -> bytes:
    """`name`: of the format, a suffix without its dot."""
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        data = rng.choice(CHANGES.get(name, TEXT))(rng, data)
    return data


def _place(rng: Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 2, 4, 16, 100, 1_000)))


def _times(rng: Random) -> int:
    return rng.choice((1, 2, 10, 100, 1_000, 10_000))


def flip(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 20)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: Random, data: bytes) -> bytes:
    start, end = _place(rng, data)
    return rng.choice((data[:start], data[start:], data[:start] + data[end:]))


def repeat(rng: Random, data: bytes) -> bytes:
    start, end = _place(rng, data)
    return data[:end] + data[start:end] * min(_times(rng), 200_000 // max(1, end - start)) + data[end:]


def move(rng: Random, data: bytes) -> bytes:
    (start, end), place = _place(rng, data), rng.randrange(len(data) + 1)
    return data[:place] + data[start:end] + data[place:]


def length(rng: Random, data: bytes) -> bytes:
    """A number of a header."""
    form = rng.choice(("<B", "<H", "<L", ">H", ">L", "<Q"))
    size = struct.calcsize(form)
    start = rng.randrange(max(1, len(data) - size))
    most = (1 << 8 * size) - 1
    return data[:start] + struct.pack(form, rng.choice((0, 1, 0x7F, most >> 1, most - 1, most))) + data[start + size :]


def mark(rng: Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    marks = "".join(rng.choice(MARKS) for _ in range(rng.choice((1, 1, 2, 4))))
    encoded = marks.encode("utf-8")
    return data[:start] + encoded * min(_times(rng), 100_000 // len(encoded)) + data[start:]


def recode(rng: Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(rng.choice(("utf-16", "utf-32", "cp1252", "shift_jis", "utf-8-sig", "cp037")), "replace")


def tags(rng: Random, data: bytes) -> bytes:
    """An element that is repeated, nested, left out or put elsewhere."""
    found = list(TAG.finditer(data))
    if not found:
        return mark(rng, data)
    first, second = sorted((rng.choice(found), rng.choice(found)), key=lambda tag: tag.start())
    part = data[first.start() : second.end()]
    times = min(_times(rng), 300_000 // len(part))
    return (
        data[: first.start()]
        + rng.choice((part * times, b"", first[0] * times + part, part + second[0]))
        + (data[second.end() :])
    )


def values(rng: Random, data: bytes) -> bytes:
    """An attribute of XML."""
    found = list(VALUE.finditer(data))
    if not found:
        return tags(rng, data)
    chosen = rng.choice(found)
    word = rng.choice((rng.choice(WORDS).encode(), rng.choice(found)[0][1:-1]))
    return data[: chosen.start()] + b'"' + word + b'"' + data[chosen.end() :]


def entities(rng: Random, data: bytes) -> bytes:
    laughs = b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 9))
    head = b'<!DOCTYPE x [<!ENTITY a0 "ha"><!ENTITY x SYSTEM "file:///etc/passwd">' + laughs + b"]>"
    body = data.partition(b"?>")[2] if data.startswith(b"<?xml") else data
    start = rng.randrange(len(body) + 1)
    return head + body[:start] + rng.choice((b"&a8;", b"&x;")) + body[start:]


def words(rng: Random, data: bytes) -> bytes:
    """A control word or group of RTF that is repeated, left out, put elsewhere, or has another number."""
    found = list(CONTROL.finditer(data))
    if not found:
        return flip(rng, data)
    chosen, other = rng.choice(found), rng.choice(found)
    number = chosen[0].rstrip() + rng.choice(NUMBERS).encode() + b" "
    times = min(_times(rng), 300_000 // len(chosen[0]))
    new = rng.choice((chosen[0] * times, b"", other[0], chosen[0] + other[0], number))
    return data[: chosen.start()] + new + data[chosen.end() :]


def numbers(rng: Random, data: bytes) -> bytes:
    """A number or a reference of a PDF."""
    found = list(PDF_NUMBER.finditer(data))
    if not found:
        return flip(rng, data)
    chosen = rng.choice(found)
    word = rng.choice((rng.choice(NUMBERS).encode(), rng.choice(found)[0]))
    return data[: chosen.start()] + word + data[chosen.end() :]


def streams(rng: Random, data: bytes) -> bytes:
    """A stream of a PDF that expands to a thousand times its size, or to what another says."""
    parts = re.split(rb"(stream\r?\n.*?endstream)", data, flags=re.DOTALL)
    if len(parts) < 2:
        return flip(rng, data)
    place = rng.randrange(1, len(parts), 2)
    content = b"BT /F1 12 Tf " + rng.choice((b"(aaaa) Tj ", b"q ", b"[(a) 9 (b)] TJ ", b"/Fm0 Do ")) * 20_000
    parts[place] = b"stream\n" + zlib.compress(content) + b"\nendstream"
    return b"".join(parts)


def parts(rng: Random, data: bytes) -> bytes:
    """An archive written anew: a part changed, left out, doubled, swapped, renamed, or packed in another way."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
    except (*DAMAGE, LZMAError):
        return flip(rng, data)
    if not members:
        return flip(rng, data)
    place, other = rng.randrange(len(members)), rng.randrange(len(members))
    name, content = members[place]
    method = zipfile.ZIP_DEFLATED
    match rng.randrange(10):
        case 0:
            del members[place]
        case 1:
            members.append((rng.choice((name, name + "2", members[other][0])), content))
        case 2:
            members[place], members[other] = (name, members[other][1]), (members[other][0], content)
        case 3:
            method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        case _:
            members[place] = (name, rng.choice((tags, tags, values, values, flip, cut, entities, mark))(rng, content))
    written = BytesIO()
    with WARNINGS, warnings.catch_warnings(), zipfile.ZipFile(written, "w", method) as archive:
        warnings.simplefilter("ignore")  # of two parts of one name
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return written.getvalue()


WARNINGS = threading.Lock()  # what they are to do is one setting for all threads
BYTES: tuple[Change, ...] = (flip, cut, repeat, move, length)
TEXT: tuple[Change, ...] = (flip, cut, repeat, move, mark, mark, mark, recode)
CHANGES = {
    "pdf": (*BYTES, numbers, numbers, numbers, streams),
    "rtf": (*BYTES, words, words, words, words, mark),
    "html": (*TEXT, tags, tags, values, entities),
    **dict.fromkeys(ARCHIVES, (*BYTES, *(parts,) * 8)),
}
