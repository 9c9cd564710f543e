"""Presentations: alternatives for newer programs, equations and SmartArt."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.loaders import load
from tests.app.loaders.files import OFFICE, parts_of, write_pptx, write_zip

SLIDE = "ppt/slides/slide1.xml"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
NEWER = "http://schemas.microsoft.com/office/drawing/2010/main"
MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
DIAGRAM = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SQUARED = (
    f'<a14:m xmlns:a14="{NEWER}"><m:oMathPara xmlns:m="{MATH}"><m:oMath><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e>'
    "<m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></m:oMathPara></a14:m>"
)


def alternatives(choice: str, fallback: str) -> str:
    return (
        f'<mc:AlternateContent xmlns:mc="{MC}"><mc:Choice xmlns:a14="{NEWER}" Requires="a14">{choice}</mc:Choice>'
        f"<mc:Fallback>{fallback}</mc:Fallback></mc:AlternateContent>"
    )


def slide_of(path: Path) -> tuple[dict[str, str | bytes], str, str]:
    """The parts of a presentation with one slide, its XML, and in it the shape of the points."""
    parts = parts_of(write_pptx(path, [("Method", ["We minimise the loss."])]))
    slide = parts[SLIDE]
    assert isinstance(slide, bytes)
    return parts, slide.decode(), re.findall(r"<p:sp>.*?</p:sp>", slide.decode(), re.DOTALL)[-1]


def test_shapes_with_alternatives_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pptx"
    parts, slide, shape = slide_of(path)
    picture = shape.replace("We minimise the loss.", " ")
    for wrapped in (
        alternatives(shape, picture),
        alternatives("", shape),
        alternatives(alternatives(shape, picture), picture),
    ):
        write_zip(path, parts | {SLIDE: slide.replace(shape, wrapped)})
        assert load(path).text == "# Method\n\nWe minimise the loss."


def test_equations_are_read_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "a.pptx"
    parts, slide, shape = slide_of(path)
    before, after = re.split("(?<=</a:r>)", shape, maxsplit=1)
    run = "<a:r><a:t> of it.</a:t></a:r>"
    for equation in (SQUARED, alternatives(SQUARED, "<a:r><a:t> </a:t></a:r>")):
        whole = alternatives(before + equation + run + after, shape.replace("We minimise the loss.", " "))
        write_zip(path, parts | {SLIDE: slide.replace(shape, whole)})
        assert load(path).text == "# Method\n\nWe minimise the loss.x^2 of it."


def with_diagram(path: Path, *texts: str, frames: int = 1, target: str = 'Target="../diagrams/data1.xml"') -> Path:
    parts, slide, shape = slide_of(path)
    frame = (
        '<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="9" name="D"/><p:cNvGraphicFramePr/><p:nvPr/>'
        '</p:nvGraphicFramePr><p:xfrm><a:off x="0" y="9999999"/><a:ext cx="9" cy="9"/></p:xfrm><a:graphic>'
        f'<a:graphicData uri="{DIAGRAM}"><dgm:relIds xmlns:dgm="{DIAGRAM}" r:dm="rId77"/></a:graphicData></a:graphic>'
        "</p:graphicFrame>"
    )
    points = "".join(f"<dgm:pt><dgm:t><a:p>{text}</a:p></dgm:t></dgm:pt>" for text in texts)
    relations, types = (parts[name] for name in ("ppt/slides/_rels/slide1.xml.rels", "[Content_Types].xml"))
    assert isinstance(relations, bytes) and isinstance(types, bytes)
    related = f'<Relationship Id="rId77" Type="{OFFICE}/diagramData" {target}/></Relationships>'
    content = '<Override PartName="/ppt/diagrams/data1.xml" ContentType="application/vnd.x+xml"/></Types>'
    changed: dict[str, str | bytes] = {
        SLIDE: slide.replace(shape, shape + frame * frames),
        "ppt/slides/_rels/slide1.xml.rels": relations.decode().replace("</Relationships>", related),
        "[Content_Types].xml": types.decode().replace("</Types>", content),
        "ppt/diagrams/data1.xml": f'<dgm:dataModel xmlns:dgm="{DIAGRAM}" xmlns:a="{DRAWING}"><dgm:ptLst>{points}'
        "</dgm:ptLst></dgm:dataModel>",
    }
    return write_zip(path, parts | changed)


def test_smartart_is_read_in_its_order(tmp_path: Path) -> None:
    texts = "<a:r><a:t>Plan</a:t></a:r><a:br/><a:r><a:t>well</a:t></a:r>", "<a:endParaRPr/>", SQUARED
    path = with_diagram(tmp_path / "a.pptx", *texts)
    assert load(path).text == "# Method\n\nWe minimise the loss.\n\n- Plan\nwell\n- x^2"


def test_smartart_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    path = with_diagram(tmp_path / "a.pptx", "<a:r><a:t>Plan</a:t></a:r>", frames=300)
    assert load(path).text == "# Method\n\nWe minimise the loss.\n\nPlan"


def test_smartart_that_stands_elsewhere_is_left_out(tmp_path: Path) -> None:
    outside = 'Target="file:///etc/hostname" TargetMode="External"'
    path = with_diagram(tmp_path / "a.pptx", "<a:r><a:t>Plan</a:t></a:r>", target=outside)
    assert load(path).text == "# Method\n\nWe minimise the loss."


def test_smartart_that_is_damaged_costs_no_more_than_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = with_diagram(tmp_path / "a.pptx", "<a:r><a:t>Plan")
    assert load(path).text == "# Method\n\nWe minimise the loss."
    assert "a damaged diagram is left out" in caplog.text


@pytest.mark.parametrize("within", ["{}", "<p:grpSp><p:nvGrpSpPr/><p:grpSpPr/>{}</p:grpSp>"])
def test_what_was_drawn_by_pen_is_left_out(tmp_path: Path, within: str) -> None:
    path = tmp_path / "a.pptx"
    parts, slide, shape = slide_of(path)
    ink = alternatives('<p:contentPart r:id="rId2"/>', "<p:pic/>")
    write_zip(path, parts | {SLIDE: slide.replace(shape, shape + within.format(ink))})
    assert load(path).text == "# Method\n\nWe minimise the loss."
