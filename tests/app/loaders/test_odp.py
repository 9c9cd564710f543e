"""OpenDocument presentations: slides with their titles, shapes in order, and notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import LoadError
from app.loaders import load
from app.loaders.base import Parsed, ParseLimits
from tests.app.loaders.files import parts_of, write_opendocument, write_zip


def shape(text: str, kind: str = "", y: str = "", x: str = "0cm") -> str:
    told = f' presentation:class="{kind}"' if kind else ""
    told += f' svg:y="{y}" svg:x="{x}"' if y else ""
    return f"<draw:frame{told}><draw:text-box>{text}</draw:text-box></draw:frame>"


def said(*texts: str) -> str:
    return "".join(f"<text:p>{text}</text:p>" for text in texts)


def read(tmp_path: Path, *slides: str, limits: ParseLimits | None = None) -> Parsed:
    body = "".join(f"<draw:page>{slide}</draw:page>" for slide in slides)
    parsed = load(write_opendocument(tmp_path / "a.odp", body), limits)
    parsed.check_integrity()
    return parsed


def pages(parsed: Parsed) -> list[str]:
    return [parsed.text[page.start : page.end] for page in parsed.pages]


def test_slides_are_pages_with_titles_points_and_notes(tmp_path: Path) -> None:
    points = "<text:list>" + "".join(f"<text:list-item>{said(one)}</text:list-item>" for one in "ab") + "</text:list>"
    notes = f"<presentation:notes><draw:page-thumbnail/>{shape(said('Say it', 'slowly'), 'notes')}</presentation:notes>"
    parsed = read(
        tmp_path,
        f"{notes}{shape(points, 'outline', '3cm')}{shape(said('Oil', 'of 1884'), 'title', '9cm')}",
        "",
        shape(said("Only words.")),
    )
    assert (parsed.kind, parsed.title) == ("markdown", "Oil of 1884")
    assert pages(parsed) == ["# Oil of 1884\n\n- a\n- b\n\nNotes: Say it\n\nslowly", "", "Only words."]
    assert [(page.number, page.label) for page in parsed.pages] == [(1, "slide"), (2, "slide"), (3, "slide")]


def test_a_presentation_as_programs_write_it(tmp_path: Path) -> None:
    """Whatever the prefixes are: the standard's names of them decide."""
    spaces = {"a": "office", "b": "drawing", "c": "text", "d": "presentation", "e": "svg-compatible"}
    told = "".join(f' xmlns:{key}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for key, name in spaces.items())
    title = '<b:frame d:class="title" e:y="5cm"><b:text-box><c:p>Oil</c:p></b:text-box></b:frame>'
    thing = '<b:frame e:y="1cm"><b:object/></b:frame><b:custom-shape e:y="2cm"><c:p>Words.</c:p></b:custom-shape>'
    notes = "<d:notes><b:page-thumbnail/><b:frame><b:text-box><c:p>Slowly</c:p></b:text-box></b:frame></d:notes>"
    slide = f'<b:page b:name="page1">{title}{thing}{notes}</b:page>'
    content = f"<a:body><a:presentation>{slide}<d:settings/></a:presentation></a:body>"
    path = write_opendocument(tmp_path / "a.odp", "")
    parts = parts_of(path) | {"content.xml": f"<a:document-content{told}>{content}</a:document-content>"}
    assert load(write_zip(path, parts)).text == "# Oil\n\nWords.\n\nNotes: Slowly"


def test_shapes_are_read_from_the_top_left(tmp_path: Path) -> None:
    group = f"<draw:g>{shape(said('inch'), y='1in')}{shape(said('with it'), y='0cm')}</draw:g>"
    shapes = [shape(said("right"), y="20mm", x="9cm"), group, shape(said("left"), y="2cm"), shape(said("nowhere"))]
    assert read(tmp_path, "".join(shapes)).text == "nowhere\n\nleft\n\nright\n\ninch\n\nwith it"


def test_what_each_slide_repeats_and_what_is_no_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    repeated = "".join(shape(said(kind), kind) for kind in ("page-number", "date-time", "footer", "header"))
    comment = "<office:annotation><dc:creator>Ann</dc:creator><text:p>Why?</text:p></office:annotation>"
    chart = "<draw:frame><draw:object/></draw:frame>"
    parsed = read(tmp_path, f"{repeated}{shape(said('Kept.'))}{chart}{comment}")
    assert parsed.text == "Kept.\n\nComment by Ann: Why?"
    assert "1 embedded objects" in caplog.text


def test_tables(tmp_path: Path) -> None:
    row = "<table:table-row>" + "".join(f"<table:table-cell>{said(one)}</table:table-cell>" for one in "ab")
    table = f"<draw:frame><table:table>{row}</table:table-row>{row}</table:table-row></table:table></draw:frame>"
    assert read(tmp_path, table).text == "| a | b |\n| --- | --- |\n| a | b |"


def test_many_slides_and_deep_ones_are_bounded(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="has more than 20 slides"):
        read(tmp_path, *[shape(said("x"))] * 21, limits=ParseLimits(max_pages=20))
    deep = "<draw:g>" * 50_000 + said("deep") + "</draw:g>" * 50_000
    assert read(tmp_path, deep).text == "deep"
    assert len(read(tmp_path, "<draw:page>" * 1_000 + said("x") + "</draw:page>" * 1_000).pages) == 1
