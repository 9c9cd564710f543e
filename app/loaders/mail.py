"""E-mails as Markdown: the subject a heading, then who wrote it to whom, what they said, and the mails it encloses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from email.parser import BytesParser
from functools import partial
from pathlib import Path
from typing import cast

from app.errors import LoadError, printable
from app.loaders.base import Parsed, SourceFile
from app.loaders.encodings import as_declared, decode
from app.loaders.html import page_of
from app.loaders.mail_part import ENCLOSED, HTML, MOST_PARTS, PLAIN, MailPart, MailPolicy, flowing, with_whole_words
from app.loaders.marks import with_paired_fences
from app.loaders.soundness import reading, refuse_binary

MAIL = "an e-mail"
MOST_ENCLOSED = 8  # mails within each other that are read
LONGEST_TOLD = 1_000
TOLD, LONGEST_NAME = 10, 80  # names of attachments at most in a warning, and their characters
PEOPLE = ("From", "To", "Cc", "Date")
HEADERS = (*PEOPLE, "Subject", "Received", "Message-ID", "MIME-Version", "Content-Type")
logger = logging.getLogger(__name__)


def load_mail(source: SourceFile) -> Parsed:
    refuse_binary(source)
    with reading(source, MAIL):
        reader = _Reader(source)
        mail = reader.parsed(source.data.removeprefix(b"\xef\xbb\xbf").lstrip(), 0)
        if not any(name in mail for name in HEADERS):
            raise source.error("is no e-mail: no header of one stands at its start; rename it to .txt if it is a text")
        text = "\n\n".join(source.bounded(filter(None, reader.mail(mail, 1))))
        title = _header(mail, "Subject")
    reader.warn()
    return Parsed(text, "markdown", title or source.name)


class _Reader:
    def __init__(self, source: SourceFile):
        self._source = source
        self._budget = [MOST_PARTS]
        self._attachments: list[str] = []
        self._others: list[MailPart] = []  # texts of other kinds in the mail that is read
        self._deeper = 0  # mails that are enclosed too deep

    def parsed(self, data: bytes, depth: int) -> MailPart:
        """A mail so deep in the whole one, whose parts count to those of the whole."""
        factory = partial(MailPart, self._source, self._budget, depth)
        return cast(MailPart, BytesParser(factory, policy=MailPolicy()).parsebytes(data))

    def mail(self, part: MailPart, level: int) -> Iterator[str]:
        """Its blocks; `level` counts the mails that enclose it, and itself."""
        subject = _header(part, "Subject") or ("Enclosed e-mail" if level > 1 else "")
        yield f"{'#' * min(level, 6)} {subject}" if subject else ""
        yield "\n".join(f"{name}: {value}" for name in PEOPLE if (value := _header(part, name)))
        around, self._others = self._others, []
        is_told = False
        for block in filter(None, self._content(part, level)):
            is_told = True
            yield block
        for other in self._others:
            if is_told:
                self._leave_out(other)
            else:
                yield self._text(other, other.kind)
        self._others = around

    def warn(self) -> None:
        """Of what is left out."""
        if self._attachments:
            shown = ", ".join(printable(Path(name))[:LONGEST_NAME] for name in self._attachments[:TOLD])
            number, rest = len(self._attachments), ", …" if len(self._attachments) > TOLD else ""
            what = "1 attachment is" if number == 1 else f"{number:,} attachments are"
            logger.warning("%s: %s left out: %s%s", printable(self._source.path), what, shown, rest)
        if self._deeper:
            told = "%s: %d mails are left out, which more than %d others enclose"
            logger.warning(told, printable(self._source.path), self._deeper, MOST_ENCLOSED)

    def _content(self, part: MailPart, level: int) -> Iterator[str]:
        kind, parts = part.kind, part.parts
        if kind in ENCLOSED and (parts or part.is_encoded):
            if level > MOST_ENCLOSED:
                self._deeper += 1
                return
            for mail in parts or [self.parsed(part.content(), part.depth + 1)]:
                yield from self.mail(mail, level + 1)
        elif kind == "multipart/alternative" and parts:
            yield from self._one_of(parts, level)
        elif parts and not kind.startswith("message/"):
            for inner in parts:
                yield from self._content(inner, level)
        elif part.is_text:
            yield self._text(part, kind)
        elif part.is_other_text:
            self._others.append(part)
        else:
            self._leave_out(part)

    def _leave_out(self, part: MailPart) -> None:
        self._attachments.append(part.get_filename() or part.kind)

    def _one_of(self, parts: list[MailPart], level: int) -> Iterator[str]:
        """The plain text, or else the page; the last of others is the best. Attachments of all of them are told."""
        chosen: list[str] = []
        for kind in (PLAIN, HTML):
            alike = [part for part in parts if part.kind == kind and part.is_text]
            chosen = chosen or list(filter(None, (self._text(part, kind) for part in alike[:1])))
        for part in reversed(parts):
            if part.parts:
                told = list(filter(None, self._content(part, level)))
                chosen = chosen or told
        if not chosen:
            self._others += [part for part in parts if part.is_other_text][-1:]
        yield from chosen

    def _text(self, part: MailPart, kind: str) -> str:
        """What cannot be read costs itself, and not the mail."""
        content = SourceFile(self._source.path, part.content(), self._source.limits)
        declared = part.get_content_charset() or ""
        try:
            text = page_of(content, declared)[0] if kind == HTML else decode(content, declared)
        except LoadError as error:
            logger.warning("%s: a text of it is left out: it %s", printable(self._source.path), error.reason)
            return ""
        text = text.replace("\r\n", "\n")
        is_joined = kind == PLAIN and str(part.get_param("delsp", "")).lower() == "yes"
        text = (flowing(text) if is_joined else text).strip()
        return text if kind == HTML else with_paired_fences(text)


def _header(part: MailPart, name: str) -> str:
    """Its text on one line."""
    raw = next((str(value) for key, value in part.raw_items() if key.lower() == name.lower()), "")
    if not raw.isascii() and any("\udc80" <= char <= "\udcff" for char in raw):
        data = raw.encode("ascii", "surrogateescape")
        raw = as_declared(data, part.charset) or data.decode("ascii", "replace")
    text = " ".join(str(part.policy.header_fetch_parse(name, with_whole_words(raw))).split())
    return text if len(text) <= LONGEST_TOLD else f"{text[:LONGEST_TOLD]}…"
