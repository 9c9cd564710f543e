"""Word documents as Markdown: headings, lists, tables and notes. The format knows no pages."""

from __future__ import annotations

from io import BytesIO

from app.loaders.archive import opened
from app.loaders.base import Parsed, Source
from app.loaders.damage import reading
from app.loaders.html import markdown_of
from app.loaders.sniffing import DOCX
from app.loaders.text import first_heading

STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"


def load_docx(source: Source) -> Parsed:
    import mammoth

    with opened(source, DOCX), reading(source, DOCX.name):
        html = mammoth.convert_to_html(
            BytesIO(source.data),
            style_map=STYLES,
            include_embedded_style_map=False,
            convert_image=lambda _: [],
            external_file_access=False,
        ).value
    text, _ = markdown_of(html)
    return Parsed(text, "markdown", first_heading(text) or source.name)
