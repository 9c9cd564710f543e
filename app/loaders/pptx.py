"""PowerPoint presentations as Markdown: a page per slide, its title a heading, then its shapes from the top left.

Charts are tables, of the numbers that programs keep in their XML for whoever cannot compute them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any

from lxml.etree import XMLSyntaxError
from pptx import Presentation
from pptx.exc import PythonPptxError
from pptx.oxml import parse_xml
from pptx.oxml.ns import qn

from app.errors import printable
from app.loaders.base import PagedText, Parsed, SourceFile
from app.loaders.blocks import DEEPEST, grid
from app.loaders.marks import escaped
from app.loaders.soundness import PPTX, opened, reading
from app.loaders.text import first_heading
from app.loaders.wordml import MATH, equation

ALTERNATIVES = "{http://schemas.openxmlformats.org/markup-compatibility/2006}AlternateContent"
FORMULA = "{http://schemas.microsoft.com/office/drawing/2010/main}m"  # within a paragraph
INK = "{http://schemas.openxmlformats.org/presentationml/2006/main}contentPart"
EQUATIONS = tuple(f"{{{namespace}}}oMath" for namespace in MATH)
logger = logging.getLogger(__name__)
Column = dict[int, str]  # by the index of the point


def load_pptx(source: SourceFile) -> Parsed:
    slides = PagedText(source, "slide")
    with opened(source, PPTX), reading(source, PPTX.name, PythonPptxError):
        presentation = Presentation(BytesIO(source.data))
        diagrams: set[str] = set()  # that have been told: a forged file refers to the same a million times
        for number, slide in enumerate(_once(presentation.slides), start=1):
            slides.add(number, "\n\n".join(source.bounded(_blocks(source, slide, diagrams))))
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


def _blocks(source: SourceFile, slide: Any, diagrams: set[str]) -> Iterator[str]:
    _simplify(slide.element)
    title = slide.shapes.title
    heading = " ".join(title.text_frame.text.split()) if title is not None else ""
    if heading:
        yield f"# {heading}"
    for shape in _in_order(slide.shapes):
        if title is None or shape._element is not title._element:  # programs give the same id twice
            yield from _shape(source, shape, diagrams)
    if slide.has_notes_slide:
        _simplify(slide.notes_slide.element)
        notes = slide.notes_slide.notes_text_frame
        if notes is not None and notes.text.strip():
            yield escaped(f"Notes: {_lines(notes.text)}")


def _simplify(root: Any) -> None:
    """Puts one of several alternatives, and the text of equations, where they stand: the library looks at neither.

    The alternatives that stand first are for newer programs, and hold what the others show as pictures.
    """
    for content in list(root.iterdescendants(ALTERNATIVES)):
        for child in next((list(branch) for branch in content if len(branch)), ()):
            content.addprevious(child)
        content.getparent().remove(content)
    for ink in list(root.iterdescendants(INK)):  # which the library takes for a shape, and has no class for
        ink.getparent().remove(ink)
    for formula in list(root.iterdescendants(FORMULA)):
        run, text = formula.makeelement(qn("a:r")), formula.makeelement(qn("a:t"))
        text.text = "".join(equation(found) for found in formula.iter(*EQUATIONS))
        run.append(text)
        formula.getparent().replace(formula, run)


def _in_order(shapes: Any) -> list[Any]:
    """From top to bottom, then from left to right. A shape without a place stands where its layout puts it: first."""
    return sorted(shapes, key=lambda shape: (shape.top or 0, shape.left or 0))


def _shape(source: SourceFile, shape: Any, diagrams: set[str]) -> Iterator[str]:
    if hasattr(shape, "shapes"):  # a group
        for inner in _in_order(shape.shapes):
            yield from _shape(source, inner, diagrams)
    elif getattr(shape, "has_table", False):
        table = grid(
            [cell.text for cell in row.tc_lst] for row in shape.table._tbl.tr_lst
        )  # `rows` looks for each one anew
        if table:
            yield table
    elif getattr(shape, "has_chart", False):
        chart = shape.chart
        if chart.has_title and chart.chart_title.has_text_frame:
            yield escaped(_lines(chart.chart_title.text_frame.text))
        yield from charted(source, chart._chartSpace)  # `plots` looks for each point anew
    elif shape.has_text_frame:
        text = _paragraphs(shape.text_frame.paragraphs)
        if text:
            yield text
    else:
        yield from _diagrams(source, shape, diagrams)


def _diagrams(source: SourceFile, shape: Any, told: set[str]) -> Iterator[str]:
    """SmartArt: its texts stand in a part of their own."""
    for reference in shape._element.iter("{*}relIds"):
        relation = shape.part.rels.get(reference.get(qn("r:dm")))
        if relation is None or relation.is_external or relation.target_part.partname in told:
            continue
        told.add(relation.target_part.partname)
        try:
            data = parse_xml(relation.target_part.blob)
        except XMLSyntaxError:
            logger.warning("%s: a damaged diagram is left out", printable(source.path))
            continue
        _simplify(data)
        text = _points((0, paragraph.text) for paragraph in data.iter(qn("a:p")))
        if text:
            yield text


def _paragraphs(paragraphs: Any) -> str:
    return _points((paragraph.level, paragraph.text) for paragraph in paragraphs)


def _points(paragraphs: Iterable[tuple[int, str]]) -> str:
    """Several paragraphs of a slide are points, however they are drawn."""
    told = [(level, text) for level, raw in paragraphs if (text := _lines(raw))]
    if len(told) == 1:
        return escaped(told[0][1])
    return escaped("\n".join(f"{'  ' * min(level, DEEPEST)}- {text}" for level, text in told))


def _lines(text: str) -> str:
    """A vertical tab is a line break within a paragraph."""
    return "\n".join(" ".join(line.split()) for line in text.replace("\v", "\n").split("\n") if line.strip())


def charted(source: SourceFile, space: Any) -> Iterator[str]:
    """A table for each plot of a chartSpace, a row per category or point. Raises LoadError where it is too large."""
    left = source.limits.max_cells
    for area in space.iter("{*}plotArea"):
        for plot in area:
            columns = list(_columns(plot))
            indices = sorted({index for _, column in columns for index in column})
            left -= len(indices) * len(columns)
            if left < 0:
                raise source.error(f"has a chart of more than {source.limits.max_cells:,} values: remove it")
            rows = ([column.get(index, "") for _, column in columns] for index in indices)
            table = grid([[name for name, _ in columns], *rows]) if columns else ""
            if table:
                yield table


def _columns(plot: Any) -> Iterator[tuple[str, Column]]:
    """Named ones: categories or X values where they are not those of the series before, Y values, sizes of bubbles."""
    before: Column | None = None
    for number, series in enumerate(plot.iterchildren("{*}ser"), start=1):
        names = (name for text in series.iterchildren("{*}tx") for name in _names(text) if name)
        name = next(names, f"series {number}")
        labels = [_labels(found) for found in series.iterchildren("{*}cat", "{*}xVal")]
        if before is None or (labels and labels[0] != before):
            before = labels[0] if labels else {}
            yield "", before
        for found in series.iterchildren("{*}val", "{*}yVal", "{*}bubbleSize"):
            yield name, {index: _number(text) for index, text in _labels(found).items()}


def _labels(found: Any) -> Column:
    """Labels of several levels stand in the file with the innermost first."""
    levels: dict[int, list[str]] = {}
    for point in found.iter("{*}pt"):
        levels.setdefault(int(point.get("idx", 0)), []).append("".join(point.itertext()).strip())
    return {index: " ".join(reversed(labels)) for index, labels in levels.items()}


def _names(text: Any) -> Iterator[str]:
    """What a name's cells hold, or what was typed in their stead."""
    yield from _labels(text).values()
    yield from ("".join(typed.itertext()).strip() for typed in text.iterchildren("{*}v"))


def _number(text: str) -> str:
    """Without the noise of binary fractions; a value may also be an error such as #N/A."""
    with suppress(ValueError):
        return f"{float(text):.15g}"
    return text
