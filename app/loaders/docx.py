"""Word documents as Markdown: headings, lists, tables and notes. The format knows no pages."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import mammoth

from app.errors import printable
from app.loaders.base import Parsed, SourceFile
from app.loaders.html import markdown_of
from app.loaders.soundness import DOCX, opened, reading
from app.loaders.text import first_heading
from app.loaders.wordml import PartSurvey, rewritten

STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"
DEEPEST = 100  # fields within each other; mammoth looks through all that are open at each run of text
UNKNOWN = "An unrecognised element was ignored: "
# Kinds that hold no text: properties, outlines of shapes, and marks of what may be edited.
MUTE = ("v:", "{urn:schemas-microsoft-com:", "w:perm")
TOLD = 10  # kinds at most in a warning
logger = logging.getLogger(__name__)


def load_docx(source: SourceFile) -> Parsed:
    with opened(source, DOCX) as archive, reading(source, DOCX.name):
        result = mammoth.convert_to_html(
            _readable(source, archive),
            style_map=STYLES,
            include_embedded_style_map=False,
            convert_image=lambda _: [],
            external_file_access=False,
        )
    _warn(source, (message.message for message in result.messages))
    text, _ = markdown_of(result.value)
    return Parsed(text, "markdown", first_heading(text) or source.name)


def _readable(source: SourceFile, archive: ZipFile) -> BytesIO:
    """The archive with what mammoth reads of its parts, whichever they are: the package says that."""
    data = BytesIO(source.data)
    with ZipFile(data, "a") as copy:
        for member in archive.infolist():
            with archive.open(member) as part:
                survey = PartSurvey.of(part)
            if survey.most_fields > DEEPEST:
                raise source.error(
                    f"has more than {DEEPEST} fields within each other: remove them in its program, or save it as PDF"
                )
            if survey.odd and archive.getinfo(member.filename) is member:  # the last of its name, which is the one read
                with archive.open(member) as part:
                    changed = rewritten(part, survey)
                del copy.NameToInfo[member.filename]  # or zipfile warns that there are two now
                copy.writestr(member.filename, changed)
    return data


def _warn(source: SourceFile, messages: Iterable[str]) -> None:
    """Of what mammoth left out."""
    kinds = [message.removeprefix(UNKNOWN) for message in messages if message.startswith(UNKNOWN)]
    lost = [kind for kind in kinds if not kind.startswith(MUTE) and not kind.endswith(("Pr", "PrEx"))]
    if lost:
        shown = ", ".join(printable(Path(kind))[:80] for kind in lost[:TOLD])
        logger.warning("%s: elements of %d unknown kinds are left out: %s", printable(source.path), len(lost), shown)
