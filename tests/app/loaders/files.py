"""Makers of real files, one per format, for the tests of loaders and of ingestion."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
DOCX_PART = "application/vnd.openxmlformats-officedocument.wordprocessingml"
STYLES = {"Title": "Title", "Heading1": "heading 1", "Heading2": "heading 2", "Normal": "Normal"}


def write_pdf(path: Path, pages: Sequence[Sequence[str]], title: str = "", password: str = "", rotate: int = 0) -> Path:
    """A page for each list of lines, 12 points high, the first baseline 72 points below the top edge."""
    from reportlab.lib.pagesizes import A4
    from reportlab.pdfgen.canvas import Canvas

    data = BytesIO()
    canvas = Canvas(data, pagesize=A4, encrypt=password or None)
    if title:
        canvas.setTitle(title)
    for lines in pages:
        canvas.setFont("Helvetica", 12)
        canvas.setPageRotation(rotate)
        for row, line in enumerate(lines):
            canvas.drawString(72, A4[1] - 72 - 15 * row, line)
        canvas.showPage()
    canvas.save()
    path.write_bytes(data.getvalue())
    return path


def write_scan(path: Path) -> Path:
    """A PDF with a picture on its page and no text."""
    from reportlab.pdfgen.canvas import Canvas

    data = BytesIO()
    canvas = Canvas(data, pagesize=(200, 200))
    canvas.rect(20, 20, 100, 100, fill=1)
    canvas.showPage()
    canvas.save()
    path.write_bytes(data.getvalue())
    return path


def write_empty_pdf(path: Path) -> Path:
    """A sound PDF with 0 pages."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[]/Count 0>>"]
    data, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(data))
        data += b"%d 0 obj%sendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    tail = b"trailer<</Size 3/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(data)
    path.write_bytes(data + b"xref\n0 3\n0000000000 65535 f \n" + table + tail)
    return path


def write_docx(
    path: Path, paragraphs: Sequence[tuple[str, str]], table: Sequence[Sequence[str]] = (), extra: str = ""
) -> Path:
    """(style, text) per paragraph, with a style of STYLES; then a table, and `extra` XML of the body."""
    body = "".join(_paragraph(style, text) for style, text in paragraphs)
    if table:
        rows = ["".join(f"<w:tc>{_paragraph('Normal', cell)}</w:tc>" for cell in row) for row in table]
        body += f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{key}"><w:name w:val="{name}"/></w:style>'
        for key, name in STYLES.items()
    )
    return write_zip(
        path,
        {
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{DOCX_PART}.document.main+xml"/>'
            f'<Override PartName="/word/styles.xml" ContentType="{DOCX_PART}.styles+xml"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
            f'<Relationship Id="r1" Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
            f'<Relationship Id="r1" Type="{OFFICE}/styles" Target="styles.xml"/></Relationships>',
            "word/styles.xml": f'<w:styles xmlns:w="{WORD}">{styles}</w:styles>',
            "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}{extra}</w:body></w:document>',
        },
    )


def _paragraph(style: str, text: str) -> str:
    return f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{escape(text)}</w:t></w:r></w:p>'


def write_pptx(path: Path, slides: Sequence[tuple[str, Sequence[str]]], notes: str = "") -> Path:
    """(title, points) per slide; the notes stand under the last one."""
    from pptx import Presentation

    presentation = Presentation()
    for title, points in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text_frame.text = "\n".join(points)
    if notes:
        slide.notes_slide.notes_text_frame.text = notes
    presentation.save(str(path))
    return path


def write_chart(path: Path, kind: str, data: Any) -> Path:
    """A presentation with nothing but a chart, of a kind of XL_CHART_TYPE."""
    from pptx import Presentation
    from pptx.enum.chart import XL_CHART_TYPE

    presentation = Presentation()
    shapes = presentation.slides.add_slide(presentation.slide_layouts[6]).shapes
    shapes.add_chart(XL_CHART_TYPE[kind], 0, 0, 9, 9, data)
    presentation.save(str(path))
    return path


def write_xlsx(path: Path, sheets: Mapping[str, Sequence[Sequence[object]]]) -> Path:
    """Rows of cells per sheet."""
    from openpyxl import Workbook

    book = Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def write_epub(path: Path, chapters: Mapping[str, str], title: str = "A book", encryption: str = "") -> Path:
    """Name -> body of each chapter, after a table of contents that is no chapter."""
    names = {f"c{number}": name for number, name in enumerate(chapters)}
    items = "".join(
        f'<item id="{key}" href="{name}" media-type="application/xhtml+xml"/>' for key, name in names.items()
    )
    spine = "".join(f'<itemref idref="{key}"/>' for key in names)
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        "OEBPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<metadata><dc:title>{escape(title)}</dc:title></metadata>"
        f'<manifest><item id="toc" href="toc.xhtml" properties="nav"/>{items}</manifest>'
        f'<spine><itemref idref="toc"/>{spine}</spine></package>',
        "OEBPS/toc.xhtml": "<html><body><nav>Contents</nav></body></html>",
    }
    if encryption:
        parts["META-INF/encryption.xml"] = (
            f'<encryption><EncryptedData><CipherData><CipherReference URI="{encryption}"/>'
            "</CipherData></EncryptedData></encryption>"
        )
    pages = {
        f"OEBPS/{name}": '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><head>'
        f'<script src="x.js"/><title/></head><body>{body}</body></html>'
        for name, body in chapters.items()
    }
    return write_zip(path, parts | pages)


def write_notebook(path: Path, cells: Sequence[Mapping[str, object]]) -> Path:
    """Of version 4, in Python."""
    whole = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


def write_opendocument(path: Path, body: str, styles: str = "", title: str = "", **parts: str) -> Path:
    """Of the kind that its suffix tells; `styles` are those of its content, and `parts` come beside it."""
    kind = {".odt": "text", ".ods": "spreadsheet", ".odp": "presentation"}[path.suffix]
    names = ("office", "text", "table", "style", "presentation", "meta")
    spaces = {name: name for name in names} | {"draw": "drawing", "svg": "svg-compatible"}
    declared = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{urn}:1.0"' for name, urn in spaces.items()
    )
    declared += ' xmlns:dc="http://purl.org/dc/elements/1.1/"'
    content = f"<office:automatic-styles>{styles}</office:automatic-styles>"
    content += f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    meta = f"<office:meta><dc:title>{escape(title)}</dc:title></office:meta>"
    whole = {
        "mimetype": f"application/vnd.oasis.opendocument.{kind}",
        "content.xml": f"<office:document-content{declared}>{content}</office:document-content>",
        "meta.xml": f"<office:document-meta{declared}>{meta}</office:document-meta>",
        "META-INF/manifest.xml": f'<manifest media-type="application/vnd.oasis.opendocument.{kind}"/>',
    }
    return write_zip(
        path, whole | {f"{name}.xml": f"<{name}{declared}>{part}</{name}>" for name, part in parts.items()}
    )


def write_zip(path: Path, parts: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def parts_of(path: Path) -> dict[str, str | bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_mixed_folder(folder: Path) -> Path:
    """One small sound file of every format; each holds the word `lighthouse` and the name of its format."""
    folder.mkdir(parents=True, exist_ok=True)
    said = "The lighthouse of this {} was lit in 1884."
    write_pdf(folder / "keeper.pdf", [["A first page without a light."], [said.format("pdf")]], title="The keeper")
    write_docx(folder / "log.docx", [("Heading1", "Log book"), ("Normal", said.format("docx"))])
    write_pptx(folder / "talk.pptx", [("Welcome", ["Hello"]), ("History", [said.format("pptx"), "End"])])
    write_xlsx(folder / "lamps.xlsx", {"Lamps": [["lamp", "note"], ["one", said.format("xlsx")]]})
    write_epub(
        folder / "novel.epub", {"one.xhtml": "<h1>One</h1><p>Fog.</p>", "two.xhtml": f"<p>{said.format('epub')}</p>"}
    )
    cells = [
        {"cell_type": "markdown", "source": "# Study"},
        {"cell_type": "code", "source": f"# {said.format('ipynb')}"},
    ]
    write_notebook(folder / "study.ipynb", cells)
    write_opendocument(folder / "memo.odt", f"<text:h>Memo</text:h><text:p>{said.format('odt')}</text:p>")
    cell = f"<table:table-cell><text:p>{said.format('ods')}</text:p></table:table-cell>"
    rows = f"<table:table-row>{cell}</table:table-row>"
    write_opendocument(folder / "oil.ods", f'<table:table table:name="Oil">{rows}</table:table>')
    slides = ("Welcome.", said.format("odp"))
    shown = "".join(f"<draw:page><draw:frame><text:p>{slide}</text:p></draw:frame></draw:page>" for slide in slides)
    write_opendocument(folder / "slides.odp", shown)
    texts = {
        "paper.rtf": f"{{\\rtf1\\ansi\\pard {said.format('rtf')}\\par}}",
        "letter.eml": f"From: Ann <ann@example.org>\nSubject: Oil\n\n{said.format('eml')}\n",
        "page.html": f"<html><title>Page</title><h1>Coast</h1><p>{said.format('html')}</p>",
        "guide.md": f"# Guide\n\n{said.format('md')}\n",
        "notes.txt": f"Notes.\n\n{said.format('txt')}\n",
        "rows.csv": f"name,note\nfirst,{said.format('csv')}\n",
        "data.json": f'[{{"name": "first", "note": "{said.format("json")}"}}]',
        "data.jsonl": f'{{"name": "first", "note": "{said.format("jsonl")}"}}\n',
        "light.py": f"# {said.format('py')}\nlit = 1884\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder
