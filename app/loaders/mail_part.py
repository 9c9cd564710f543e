"""Parts of e-mails: the classes of the library, bounded, and with headers that cost themselves where they are odd."""

from __future__ import annotations

import re
from base64 import b64encode
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import collapse_rfc2231_value
from itertools import groupby
from typing import Any, cast

from app.loaders.base import SourceFile
from app.loaders.encodings import as_declared, meant_by, whole_utf8
from app.loaders.soundness import DAMAGE

DEEPEST = 60  # parts within each other; the library looks for the ends of all that are open with each line
MOST_PARTS = 10_000
LONGEST_HEADER = 1 << 12  # characters of one that are read: the library takes quadratic time
PLAIN, HTML, XHTML = "text/plain", "text/html", "application/xhtml+xml"
ENCLOSED = ("message/rfc822", "message/global")
ENCODED = ("base64", "quoted-printable")
SIGNATURE = "-- "
ENCODED_WORD = r"=\?[\w.:*-]{1,40}\?(?:[bB]\?[!->@-~]*+|[qQ]\?[^?\s]*+)\?="
WORD_OF_LETTERS = re.compile(r"=\?([\w.:-]{1,40})\?[qQ]\?[^?\s]*+\?=")
RAW = re.compile(r"[^\0-\x7f]+")
ENCODED_WORDS = re.compile(rf"{ENCODED_WORD}(?:\s++{ENCODED_WORD})*+")


class MailPolicy(EmailPolicy):
    """That of the library, for headers of a bounded length; what is not ASCII in them may be UTF-8."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        value = value[:LONGEST_HEADER]
        text = whole_utf8(value.encode("ascii", "surrogateescape"))
        return name, value if text is None else text

    def header_fetch_parse(self, name: str, value: str) -> str:
        """As it stands where the library cannot read it."""
        try:
            return cast(str, super().header_fetch_parse(name, value))
        except DAMAGE:
            return " ".join(value.split())


class MailPart(EmailMessage):
    """Refuses to nest too deep, and more parts than the budget of the whole mail has."""

    def __init__(self, source: SourceFile, budget: list[int], depth: int, policy: EmailPolicy):
        super().__init__(policy)
        self.depth = depth
        budget[0] -= 1
        if budget[0] < 0:
            raise source.error(f"has more than {MOST_PARTS:,} parts: save the mails that it encloses as files")

    def attach(self, payload: Any) -> None:
        payload.depth = self.depth + 1
        if payload.depth > DEEPEST:
            raise RecursionError
        super().attach(payload)

    def get_content_maintype(self) -> str:
        """The parser looks for a mail in what this calls a message: in one that is encoded are only its letters."""
        return "encoded" if self.is_encoded else super().get_content_maintype()

    def get_param(self, param: str, failobj: Any = None, header: str = "content-type", unquote: bool = True) -> Any:
        """As plain text; an odd one is none."""
        try:
            found = super().get_param(param, failobj, header, unquote)
            return collapse_rfc2231_value(found).replace("\0", "") if isinstance(found, str | tuple) else found
        except DAMAGE:
            return failobj

    @property
    def kind(self) -> str:
        told = self.get_content_type()
        return HTML if told == XHTML else told

    @property
    def parts(self) -> list[MailPart]:
        return cast(list[MailPart], self.get_payload()) if self.is_multipart() else []

    @property
    def is_encoded(self) -> bool:
        """A mail that its lines do not show as it is."""
        encoding = str(self.get("content-transfer-encoding", "")).strip().lower()
        return encoding in ENCODED and self.get_content_type() in ENCLOSED

    @property
    def is_text(self) -> bool:
        """One to be read; what pretends to have parts and has none is a text too."""
        is_one = self.kind in (PLAIN, HTML) or self.kind.startswith("multipart/")
        return is_one and not self.is_multipart() and not self._is_attached

    @property
    def is_other_text(self) -> bool:
        """One to be read where a mail has no other, such as an invitation."""
        return self.kind.startswith("text/") and not self.is_multipart() and not self._is_attached

    @property
    def charset(self) -> str:
        """The encoding that it declares, or else its first part that declares one."""
        return next((found for part in self.walk() if (found := part.get_content_charset())), "")

    def content(self) -> bytes:
        """Decoded."""
        data = self.get_payload(decode=True)
        return data if isinstance(data, bytes) else b""

    @property
    def _is_attached(self) -> bool:
        return self.get_content_disposition() == "attachment"


def with_whole_words(header: str) -> str:
    """With the encoded words that stand one after another as one: the library reads each of a name by itself, though
    programs cut them amid a character."""
    return ENCODED_WORDS.sub(lambda found: _as_one_word(found[0]), header)


def _as_one_word(words: str) -> str:
    """As they are where any of them cannot be read."""
    try:
        whole = WORD_OF_LETTERS.sub(_without_raw, words)
        found = [as_declared(data, encoding or "") for data, encoding in decode_header(whole)]
    except (HeaderParseError, LookupError, ValueError):
        return words
    text = "".join(part or "" for part in found)
    return words if None in found else f"=?utf-8?b?{b64encode(text.encode()).decode('ascii')}?="


def _without_raw(word: re.Match[str]) -> str:
    """With letters that are written as themselves encoded as all others. Raises LookupError where nobody could read it,
    and ValueError.
    """
    if (encoding := meant_by(word[1])) is None:
        raise LookupError(word[1])
    return RAW.sub(lambda raw: "".join(f"={byte:02X}" for byte in raw[0].encode(encoding)), word[0])


def flowing(text: str) -> str:
    """A text whose lines go on where a space ends them, which is none of the text (format=flowed, delsp=yes)."""
    lines = []
    for quotes, group in groupby(text.split("\n"), lambda line: len(line) - len(line.lstrip(">"))):
        mark, parts = ">" * quotes + " " if quotes else "", list[str]()
        for line in group:
            said = line[quotes:].removeprefix(" ")
            goes_on = said.endswith(" ") and said != SIGNATURE
            parts.append(said[:-1] if goes_on else said)
            if not goes_on:
                lines.append(mark + "".join(parts))
                parts = []
        lines += [mark + "".join(parts)] if parts else []
    return "\n".join(lines)
