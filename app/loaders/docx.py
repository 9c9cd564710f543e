"""Word documents as Markdown: headings, lists, tables and notes. The format knows no pages."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from xml.parsers import expat
from zipfile import ZipFile

from app.loaders.archive import opened
from app.loaders.base import Parsed, Source
from app.loaders.damage import reading
from app.loaders.html import markdown_of
from app.loaders.sniffing import DOCX
from app.loaders.text import first_heading

STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"

WORD = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",  # of strict files
)
KINDS_OF_FIELD = tuple(f"{namespace} fldCharType" for namespace in WORD)
DEEPEST = 100  # fields within each other; mammoth looks through all that are open at each run of text


def load_docx(source: Source) -> Parsed:
    import mammoth

    with opened(source, DOCX) as archive, reading(source, DOCX.name):
        _refuse_open_fields(source, archive)
        html = mammoth.convert_to_html(
            BytesIO(source.data),
            style_map=STYLES,
            include_embedded_style_map=False,
            convert_image=lambda _: [],
            external_file_access=False,
        ).value
    text, _ = markdown_of(html)
    return Parsed(text, "markdown", first_heading(text) or source.name)


def _refuse_open_fields(source: Source, archive: ZipFile) -> None:
    """In any part: the package says which are read. What is no XML, mammoth complains of."""
    for member in archive.infolist():
        parser, open_fields = expat.ParserCreate(namespace_separator=" "), _OpenFields()
        parser.StartElementHandler = open_fields.start
        with suppress(expat.ExpatError), archive.open(member) as part:
            parser.ParseFile(part)
        if open_fields.most > DEEPEST:
            raise source.error(
                f"has more than {DEEPEST} fields within each other: remove them in its program, or save it as PDF"
            )


class _OpenFields:
    """Counts those that begin and do not end."""

    def __init__(self) -> None:
        self._now = self.most = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, tag = name.rpartition(" ")
        if tag != "fldChar" or namespace not in WORD:
            return
        # mammoth takes either namespace here too, and the last where both are there.
        kinds = [value for key, value in attributes.items() if key in KINDS_OF_FIELD]
        self._now = max(0, self._now + {"begin": 1, "end": -1}.get(kinds[-1] if kinds else "", 0))
        self.most = max(self.most, self._now)
