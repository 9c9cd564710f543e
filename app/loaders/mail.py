"""E-mails as Markdown: the subject a heading, then who wrote it to whom, what they said, and the mails it encloses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import EmailPolicy
from functools import partial
from pathlib import Path
from typing import Any

from app.errors import LoadError, printable
from app.loaders.base import Parsed, SourceFile
from app.loaders.encodings import decode
from app.loaders.html import page_of
from app.loaders.soundness import DAMAGE, reading, refuse_binary

MAIL = "an e-mail"
DEEPEST = 60  # parts within each other; the library looks for the ends of all that are open with each line
MOST_PARTS = 10_000
MOST_ENCLOSED = 8  # mails within each other that are read
LONGEST_HEADER = 1 << 12  # characters of one that are read: the library takes quadratic time
LONGEST_TOLD = 1_000
TOLD, LONGEST_NAME = 10, 80  # names of attachments at most in a warning, and their characters
PEOPLE = ("From", "To", "Cc", "Date")
HEADERS = (*PEOPLE, "Subject", "Received", "Message-ID", "MIME-Version", "Content-Type")
PLAIN, HTML = "text/plain", "text/html"
ENCLOSED = ("message/rfc822", "message/global")
logger = logging.getLogger(__name__)


def load_mail(source: SourceFile) -> Parsed:
    refuse_binary(source)
    with reading(source, MAIL):
        parser = BytesParser(partial(MailPart, source, [MOST_PARTS]), policy=MailPolicy())
        mail = parser.parsebytes(source.data.removeprefix(b"\xef\xbb\xbf").lstrip())
        if not any(name in mail for name in HEADERS):
            raise source.error("is no e-mail: no header of one stands at its start; rename it to .txt if it is a text")
        reader = _Reader(source)
        text = "\n\n".join(source.bounded(filter(None, reader.mail(mail, 1))))
        title = _header(mail, "Subject")
    reader.warn()
    return Parsed(text, "markdown", title or source.name)


class MailPolicy(EmailPolicy):
    """That of the library, for headers of a bounded length; what is not ASCII in them is read as UTF-8."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:LONGEST_HEADER].encode("ascii", "surrogateescape").decode("utf-8", "replace")


class MailPart(EmailMessage):
    """Refuses to nest too deep, and more parts than the budget of the whole mail has."""

    def __init__(self, source: SourceFile, budget: list[int], policy: EmailPolicy):
        super().__init__(policy)
        self.depth = 0
        budget[0] -= 1
        if budget[0] < 0:
            raise source.error(f"has more than {MOST_PARTS:,} parts: save the mails that it encloses as files")

    def attach(self, payload: Any) -> None:
        payload.depth = self.depth + 1
        if payload.depth > DEEPEST:
            raise RecursionError
        super().attach(payload)


class _Reader:
    def __init__(self, source: SourceFile):
        self._source = source
        self._attachments: list[str] = []
        self._deeper = 0  # mails that are enclosed too deep

    def mail(self, part: Any, level: int) -> Iterator[str]:
        """Its blocks; `level` counts the mails that enclose it, and itself."""
        subject = _header(part, "Subject") or ("Enclosed e-mail" if level > 1 else "")
        yield f"{'#' * min(level, 6)} {subject}" if subject else ""
        yield "\n".join(f"{name}: {value}" for name in PEOPLE if (value := _header(part, name)))
        yield from self._content(part, level)

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

    def _content(self, part: Any, level: int) -> Iterator[str]:
        kind = part.get_content_type()
        parts = part.get_payload() if part.is_multipart() else []
        if kind in ENCLOSED and parts:
            if level > MOST_ENCLOSED:
                self._deeper += 1
                return
            for mail in parts:
                yield from self.mail(mail, level + 1)
        elif kind == "multipart/alternative" and parts:
            yield from self._one_of(parts, level)
        elif parts and not kind.startswith("message/"):
            for inner in parts:
                yield from self._content(inner, level)
        elif _is_text(part, kind):
            yield self._text(part, kind)
        else:
            self._attachments.append(part.get_filename() or kind)

    def _one_of(self, parts: list[Any], level: int) -> Iterator[str]:
        """The plain text, or else the page; the last of others is the best. Attachments of all of them are told."""
        chosen: list[str] = []
        for kind in (PLAIN, HTML):
            alike = [part for part in parts if part.get_content_type() == kind and _is_text(part, kind)]
            chosen = chosen or list(filter(None, (self._text(part, kind) for part in alike[:1])))
        for part in reversed(parts):
            if part.is_multipart():
                told = list(filter(None, self._content(part, level)))
                chosen = chosen or told
        yield from chosen

    def _text(self, part: Any, kind: str) -> str:
        """What cannot be read costs itself, and not the mail."""
        data = part.get_payload(decode=True)
        content = SourceFile(self._source.path, data if isinstance(data, bytes) else b"", self._source.limits)
        declared = part.get_content_charset() or ""
        try:
            text = page_of(content, declared)[0] if kind == HTML else decode(content, declared)
        except LoadError as error:
            logger.warning("%s: a text of it is left out: it %s", printable(self._source.path), error.reason)
            return ""
        return text.replace("\r\n", "\n").strip()


def _is_text(part: Any, kind: str) -> bool:
    """One to be read; what pretends to have parts and has none is a text too."""
    is_attached = part.get_content_disposition() == "attachment"
    return not is_attached and (kind in (PLAIN, HTML) or kind.startswith("multipart/")) and not part.is_multipart()


def _header(part: Any, name: str) -> str:
    """Its text on one line, as it stands where the library cannot read it."""
    try:
        value = str(part.get(name, ""))
    except DAMAGE:
        value = next(str(raw) for key, raw in part.raw_items() if key.lower() == name.lower())
    text = " ".join(value.split())
    return text if len(text) <= LONGEST_TOLD else f"{text[:LONGEST_TOLD]}…"
