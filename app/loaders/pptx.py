"""PowerPoint presentations as Markdown: a page per slide, its title a heading, then its shapes from the top left."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from app.loaders.archive import opened
from app.loaders.base import PagedText, Parsed, Source
from app.loaders.damage import reading
from app.loaders.grid import grid
from app.loaders.sniffing import PPTX
from app.loaders.text import first_heading


def load_pptx(source: Source) -> Parsed:
    from pptx import Presentation
    from pptx.exc import PythonPptxError

    slides = PagedText(source, "slide")
    with opened(source, PPTX), reading(source, PPTX.name, PythonPptxError):
        presentation = Presentation(BytesIO(source.data))
        for number, slide in enumerate(_once(presentation.slides), start=1):
            slides.add(number, "\n\n".join(source.bounded(_blocks(source, slide))))
        title = (presentation.core_properties.title or "").strip()
    parsed = slides.parsed("markdown", "")
    # New files carry this title of the library's or program's own template.
    named = title if title and title != "PowerPoint Presentation" else first_heading(parsed.text)
    return Parsed(parsed.text, parsed.kind, named or source.name, parsed.pages)


def _once(slides: Any) -> Iterator[Any]:
    """A forged list names the same slide a million times."""
    seen = set()
    for slide in slides:
        if slide.part.partname not in seen:
            seen.add(slide.part.partname)
            yield slide


def _blocks(source: Source, slide: Any) -> Iterator[str]:
    title = slide.shapes.title
    heading = " ".join(title.text_frame.text.split()) if title is not None else ""
    if heading:
        yield f"# {heading}"
    for shape in _in_order(slide.shapes):
        if title is None or shape.shape_id != title.shape_id:
            yield from _shape(source, shape)
    if slide.has_notes_slide:
        notes = slide.notes_slide.notes_text_frame
        if notes is not None and notes.text.strip():
            yield f"Notes: {_lines(notes.text)}"


def _in_order(shapes: Any) -> list[Any]:
    """From top to bottom, then from left to right. A shape without a place stands where its layout puts it: first."""
    return sorted(shapes, key=lambda shape: (shape.top or 0, shape.left or 0))


def _shape(source: Source, shape: Any) -> Iterator[str]:
    if hasattr(shape, "shapes"):  # a group
        for inner in _in_order(shape.shapes):
            yield from _shape(source, inner)
    elif getattr(shape, "has_table", False):
        table = grid(
            [cell.text for cell in row.tc_lst] for row in shape.table._tbl.tr_lst
        )  # `rows` looks for each one anew
        if table:
            yield table
    elif getattr(shape, "has_chart", False):
        yield from _chart(source, shape.chart)
    elif shape.has_text_frame:
        text = _paragraphs(shape.text_frame.paragraphs)
        if text:
            yield text


def _paragraphs(paragraphs: Any) -> str:
    """Several paragraphs of a slide are points, however they are drawn."""
    told = [(paragraph.level, _lines(paragraph.text)) for paragraph in paragraphs]
    told = [(level, text) for level, text in told if text]
    if len(told) == 1:
        return told[0][1]
    return "\n".join(f"{'  ' * level}- {text}" for level, text in told)


def _lines(text: str) -> str:
    """A vertical tab is a line break within a paragraph."""
    return "\n".join(" ".join(line.split()) for line in text.replace("\v", "\n").split("\n") if line.strip())


def _chart(source: Source, chart: Any) -> Iterator[str]:
    """Its numbers as a table."""
    # As many as the file says are made, whatever there are.
    told = sum(int(count.get("val", 0)) for count in chart._chartSpace.iter("{*}ptCount"))
    if told > source.limits.max_cells:
        raise source.error(f"has a chart of more than {source.limits.max_cells:,} values: remove it")
    if chart.has_title and chart.chart_title.has_text_frame:
        yield _lines(chart.chart_title.text_frame.text)
    for plot in chart.plots:
        series = list(plot.series)
        columns = [
            [str(category) for category in plot.categories],
            *([_number(v) for v in one.values] for one in series),
        ]
        height = max(map(len, columns), default=0)
        padded = [column + [""] * (height - len(column)) for column in columns]
        table = grid([["", *(one.name or "" for one in series)], *zip(*padded, strict=True)])
        if table:
            yield table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.12g}"
