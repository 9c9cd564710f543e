"""What each format gives: its text, kind, title and places."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.loaders import FORMATS, LOADERS, SUFFIXES, load
from splitter.documents import KINDS
from tests.app.loaders.files import (
    write_docx,
    write_epub,
    write_mixed_folder,
    write_pptx,
)

KIND = {"pdf": "prose", "xlsx": "items", "text": "prose", "code": "code", "table": "items", "json": "items"}
KIND |= {"jsonl": "items", "ods": "items"} | dict.fromkeys(
    ("docx", "pptx", "epub", "html", "markdown", "notebook", "mail", "odt", "odp", "rtf"), "markdown"
)
PAGE = {"pdf": (2, "page"), "pptx": (2, "slide"), "xlsx": (1, "sheet"), "epub": (2, "chapter")}
PAGE |= {"ods": (1, "sheet"), "odp": (2, "slide")}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = write_mixed_folder(tmp_path_factory.mktemp("mixed"))
    return {SUFFIXES[path.suffix]: path for path in folder.iterdir() if path.suffix}


@pytest.mark.parametrize("name", LOADERS)
def test_every_format_gives_text_kind_and_place(name: str, mixed: dict[str, Path]) -> None:
    parsed = load(mixed[name])
    parsed.check_integrity()
    assert parsed.kind == KIND[name]
    assert parsed.kind in KINDS
    start = parsed.text.index("lighthouse of this")
    places = [(place.page, place.label) for place in parsed.locate(start, start + 10)]
    assert places == ([PAGE[name]] if name in PAGE else [])


def test_every_format_has_a_loader_and_its_own_suffixes() -> None:
    assert set(FORMATS) == set(LOADERS)
    assert sum(map(len, FORMATS.values())) == len(SUFFIXES)
    assert all(suffix == suffix.lower() for suffix in SUFFIXES)


def test_suffixes_may_be_written_large(tmp_path: Path) -> None:
    path = tmp_path / "READ.TXT"
    path.write_text("Hello there.")
    assert load(path).text == "Hello there."


@pytest.mark.parametrize(
    ("name", "kind"), [("README", "prose"), ("License", "prose"), ("LICENSE-MIT", "prose"), ("Makefile", "code")]
)
def test_names_without_a_suffix_tell_a_format_too(name: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("all: of these\n")
    parsed = load(path)
    assert (parsed.text, parsed.kind, parsed.title) == ("all: of these\n", kind, name)


def test_importing_the_loaders_imports_no_library() -> None:
    heavy = "{'lxml', 'mammoth', 'openpyxl', 'pptx', 'pypdfium2', 'markitdown', 'pandas', 'torch'}"
    code = f"import sys, app.loaders, app.loaders.discovery; print({heavy} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


def test_docx_has_headings_and_tables(tmp_path: Path) -> None:
    paragraphs = [("Title", "Keeper's log"), ("Heading1", "March"), ("Normal", "Fog & <rain>."), ("Heading2", "Lamp")]
    parsed = load(write_docx(tmp_path / "log.docx", paragraphs, [["day", "oil"], ["1", "3 l"]]))
    assert parsed.title == "Keeper's log"
    assert parsed.text == (
        "# Keeper's log\n\n# March\n\nFog & <rain>.\n\n## Lamp\n\n| day | oil |\n| --- | --- |\n| 1 | 3 l |"
    )


def test_pptx_has_a_page_per_slide_with_points_and_notes(tmp_path: Path) -> None:
    parsed = load(write_pptx(tmp_path / "t.pptx", [("One", ["a", "b"]), ("Two", ["only"])], notes="Say it\nslowly"))
    assert [parsed.text[page.start : page.end] for page in parsed.pages] == [
        "# One\n\n- a\n- b",
        "# Two\n\nonly\n\nNotes: Say it\nslowly",
    ]
    assert [place.page for place in parsed.locate(0, len(parsed.text))] == [1, 2]


def test_pptx_tables_charts_and_groups_are_read(tmp_path: Path) -> None:
    from pptx import Presentation
    from pptx.chart import data as chart_data
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    presentation = Presentation()
    shapes = presentation.slides.add_slide(presentation.slide_layouts[6]).shapes
    inch = Inches(1)
    table = shapes.add_table(2, 2, inch, inch, inch, inch).table
    for index, text in enumerate(["a", "b|c", "1", "2"]):
        table.cell(index // 2, index % 2).text = text
    data: Any = chart_data.CategoryChartData()  # type: ignore[no-untyped-call]  # python-pptx leaves it unannotated
    data.categories = ["north", "south"]
    data.add_series("oil", (1.5, 2))
    shapes.add_chart(XL_CHART_TYPE.BAR_CLUSTERED, inch, inch * 3, inch, inch, data)
    box = shapes.add_group_shape().shapes.add_textbox(inch, inch * 5, inch, inch)
    box.text_frame.text = "within a group"
    presentation.save(str(tmp_path / "t.pptx"))
    text = load(tmp_path / "t.pptx").text
    assert "| a | b\\|c |\n| --- | --- |\n| 1 | 2 |" in text
    assert "|  | oil |\n| --- | --- |\n| north | 1.5 |\n| south | 2 |" in text
    assert "within a group" in text


def test_pptx_a_shape_with_the_titles_id_is_read(tmp_path: Path) -> None:
    from pptx import Presentation

    presentation = Presentation()
    shapes = presentation.slides.add_slide(presentation.slide_layouts[5]).shapes
    shapes.title.text = "Harbour"
    box: Any = shapes.add_textbox(0, 9, 9, 9)
    box.text_frame.text = "The crane."
    box._element.nvSpPr.cNvPr.set("id", str(shapes.title.shape_id))
    presentation.save(str(tmp_path / "t.pptx"))
    assert load(tmp_path / "t.pptx").text == "# Harbour\n\nThe crane."


def test_epub_chapters_are_pages_and_its_contents_are_none(tmp_path: Path) -> None:
    chapters = {"a b.xhtml": "<h1>Fog</h1><p>It&#160;came<br/>in.</p>", "two.xhtml": "<h1>Sun</h1>"}
    parsed = load(write_epub(tmp_path / "b.epub", chapters, title="Fog & Sun"))
    assert parsed.title == "Fog & Sun"
    assert [parsed.text[page.start : page.end] for page in parsed.pages] == ["# Fog\n\nIt\xa0came\nin.", "# Sun"]


def test_parsing_is_the_same_from_anywhere(mixed: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: load(path) for name, path in mixed.items()}
    monkeypatch.chdir("/")
    assert {name: load(path) for name, path in mixed.items()} == before
