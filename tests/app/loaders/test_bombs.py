"""Small files that would become large: each is refused by a limit that says so, long before it is large."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.errors import LoadError
from app.loaders import load
from app.loaders.base import ParseLimits
from app.loaders.blocks import DEEPEST
from app.loaders.soundness import AT_ONCE
from tests.app.loaders.files import WORD, parts_of, write_docx, write_epub, write_pdf, write_pptx, write_xlsx, write_zip

STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"
SMALL = ParseLimits(max_characters=100_000, max_pages=20, max_cells=50_000)


def refused(path: Path, told: str, limits: ParseLimits = SMALL) -> None:
    with pytest.raises(LoadError) as caught:
        load(path, limits)
    assert told in caught.value.reason


def replaced(path: Path, part: str, *pairs: tuple[str, str]) -> Path:
    """With a part of the archive rewritten."""
    parts = parts_of(path)
    text = parts[part]
    assert isinstance(text, bytes)
    whole = text.decode()
    for old, new in pairs:
        assert old in whole
        whole = whole.replace(old, new)
    return write_zip(path, parts | {part: whole})


def test_fields_that_begin_and_do_not_end(tmp_path: Path) -> None:
    field = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
    both = f"<w:p>{(field.format('begin') + field.format('separate') + field.format('end')) * 200}</w:p>"
    assert load(write_docx(tmp_path / "a.docx", [("Normal", "x")], extra=both), SMALL).text == "x"
    begun = f"<w:p>{field.format('begin') * 101}</w:p>"
    refused(write_docx(tmp_path / "a.docx", [], extra=begun), "has more than 100 fields within each other")
    path = write_docx(tmp_path / "a.docx", [("Normal", "x")])
    notes = f'<w:footnotes xmlns:w="{WORD}">{begun}</w:footnotes>'
    refused(write_zip(path, parts_of(path) | {"word/footnotes.xml": notes}), "has more than 100 fields")
    strict = f'xmlns:s="{STRICT}" s:fldCharType="begin"'
    for attributes in (strict, f'w:fldCharType="end" {strict}'):
        mixed = f"<w:p>{f'<w:r><w:fldChar {attributes}/></w:r>' * 101}</w:p>"
        refused(write_docx(tmp_path / "a.docx", [], extra=mixed), "has more than 100 fields")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_zipfile_expands_to_any_size_are_refused(method: int, tmp_path: Path) -> None:
    path = write_docx(tmp_path / "a.docx", [("Normal", "x")])
    with zipfile.ZipFile(path, "a", method) as archive:
        archive.writestr("word/footnotes.xml", bytes(1_000_000))
    refused(path, "is compressed in a way that no office program or book uses")


def test_a_member_that_lies_about_its_size_and_its_checksum_is_refused(tmp_path: Path) -> None:
    """zipfile would expand 2 GB of it before it cuts what is too much, and then find all in order."""
    path = write_epub(tmp_path / "a.epub", {"a.xhtml": "<p>" + "word " * 10_000 + "</p>"})
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("OEBPS/a.xhtml")
        start = zlib.crc32(archive.read(member)[:100])
    told, lie = (struct.pack("<L", member.CRC), struct.pack("<L", start))
    size, small = (struct.pack("<L", member.file_size), struct.pack("<L", 100))
    path.write_bytes(path.read_bytes().replace(told, lie).replace(size, small))
    with zipfile.ZipFile(path) as archive:
        assert len(archive.read("OEBPS/a.xhtml")) == 100
    refused(path, "a part of it is larger than it says")


class Expander:
    """One of zlib, which counts the bytes that are given to it."""

    def __init__(self, *arguments: Any):
        self._expander, self.given = zlib.decompressobj(*arguments), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._expander, name)

    def decompress(self, data: bytes) -> bytes:
        self.given += len(data)
        return self._expander.decompress(data)


def test_what_stands_behind_the_end_of_a_part_is_not_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """zlib keeps it, and copies all of it with each piece."""
    path = write_docx(tmp_path / "a.docx", [("Normal", "x")])
    archive = path.read_bytes()
    with zipfile.ZipFile(path) as opened:
        last = opened.infolist()[-1]
    told = struct.pack("<L", last.compress_size)
    rest = 40 * AT_ONCE
    at = archive.rindex(b"PK\x01\x02")  # of the directory's entry of the last part
    start = archive.index(b"PK\x01\x02")
    longer = archive[at:].replace(told, struct.pack("<L", last.compress_size + rest), 1)
    directory = struct.pack("<L", start), struct.pack("<L", start + rest)
    path.write_bytes(archive[:start] + bytes(rest) + archive[start:at] + longer.replace(*directory, 1))
    made: list[Expander] = []

    def expander(*arguments: Any) -> Expander:
        made.append(Expander(*arguments))
        return made[-1]

    monkeypatch.setattr("app.loaders.soundness.zlib", SimpleNamespace(decompressobj=expander, MAX_WBITS=zlib.MAX_WBITS))
    assert load(path).text == "x"
    assert 0 < sum(one.given for one in made) <= len(archive) + AT_ONCE


def test_parts_that_are_the_same_bytes_are_refused(tmp_path: Path) -> None:
    path = write_docx(tmp_path / "a.docx", [("Normal", "word " * 1_000)])
    with zipfile.ZipFile(path, "a") as archive:
        for _ in range(1_000):
            archive.filelist.append(archive.filelist[-1])
        archive._didModify = True  # type: ignore[attr-defined]
    refused(path, "its parts overlap")


def test_a_chapter_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    path = write_epub(tmp_path / "a.epub", {"a.xhtml": "<p>One chapter.</p>", "b.xhtml": "<p>Another.</p>"})
    replaced(path, "OEBPS/book.opf", ('<itemref idref="c0"/>', '<itemref idref="c0"/>' * 10_000))
    assert load(path, SMALL).text == "One chapter.\n\nAnother."


def test_what_a_book_gives_instead_of_images_is_looked_for_once(tmp_path: Path) -> None:
    """From each place on the way it took minutes; a test that hangs here is the failure."""
    path = write_epub(tmp_path / "a.epub", {"a.xhtml": "<p>One chapter.</p>"})
    images = [f'<item id="i{at}" href="i.png" media-type="image/png" fallback="i{at + 1}"/>' for at in range(20_000)]
    named = "".join(f'<itemref idref="i{at}"/>' for at in range(20_000))
    last = '<item id="i20000" href="a.xhtml"/>'
    package = ("</manifest>", f"{''.join(images)}{last}</manifest>"), ('<itemref idref="c0"/>', named)
    assert load(replaced(path, "OEBPS/book.opf", *package)).text == "One chapter."


def test_a_slide_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    path = write_pptx(tmp_path / "a.pptx", [("Title", ["point"])])
    again = "".join(f'<p:sldId id="{number}" r:id="rId7"/>' for number in range(300, 1300))
    replaced(path, "ppt/presentation.xml", ("</p:sldIdLst>", again + "</p:sldIdLst>"))
    assert len(load(path, SMALL).pages) == 1


def test_points_that_claim_a_depth(tmp_path: Path) -> None:
    path = write_pptx(tmp_path / "a.pptx", [("Title", ["a", "b", "c"])])
    replaced(path, "ppt/slides/slide1.xml", ("<a:p><a:r><a:t>b", '<a:p><a:pPr lvl="200000"/><a:r><a:t>b'))
    assert load(path, SMALL).text == f"# Title\n\n- a\n{'  ' * DEEPEST}- b\n- c"


def test_strings_that_many_cells_share(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "a.xlsx", {"S": [["head", "two"]] + [["x" * 5_000, 1]] * 100})
    assert path.stat().st_size < 10_000
    refused(path, "gives more than 0.1 million characters of text: split it")


@pytest.mark.parametrize("cells", [["A900000000"], ["XFD4", "XFD5", "XFD6", "XFD7"]])
def test_cells_far_from_the_others(cells: list[str], tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "a.xlsx", {"S": [["a"], ["b"], ["c"]]})
    rows = "".join(f'<row r="{cell.lstrip("AXFD")}"><c r="{cell}" t="n"><v>1</v></c></row>' for cell in cells)
    replaced(path, "xl/worksheets/sheet1.xml", ("</sheetData>", rows + "</sheetData>"))
    refused(path, "has more than 50,000 cells")


def test_styles_of_a_workbook_are_read_as_a_tree(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "a.xlsx", {"S": [["a"]]})
    parts = parts_of(path)
    write_zip(path, parts | {"xl/styles.xml": b"<styleSheet>" + b"<x/>" * 300_000 + b"</styleSheet>"})
    refused(path, "expands to 1.2 MiB of markup", ParseLimits(max_xml_bytes=1 << 20))


def test_many_pages(tmp_path: Path) -> None:
    refused(write_pdf(tmp_path / "a.pdf", [["words"]] * 21), "has more than 20 pages: split it")
    chapters = {f"{number}.xhtml": "<p>words</p>" for number in range(21)}
    refused(write_epub(tmp_path / "a.epub", chapters), "has more than 20 chapters: split it")


def test_texts_that_repeat_what_stands_above_them(tmp_path: Path) -> None:
    name = "n" * 190
    table = tmp_path / "a.csv"
    table.write_text(f"{name},{name}\n" + "1,2\n" * 1_000)
    refused(table, "gives more than 0.1 million characters")
    values = tmp_path / "a.json"
    values.write_text(json.dumps({name: [1, {}] * 1_000}))
    refused(values, "gives more than 0.1 million characters")
    lines = tmp_path / "a.jsonl"
    lines.write_text(json.dumps({name: [1, {}] * 10}) + "\n" + (json.dumps({name: [1, {}] * 10}) + "\n") * 100)
    refused(lines, "gives more than 0.1 million characters")
    page = tmp_path / "a.html"
    page.write_text("<blockquote>" * 10 + "x<br>" * 6_000)
    refused(page, "gives more than 0.1 million characters")


HOSTILE = {
    "comments.html": "<!-- x -->" * 90 + "<p>words",
    "comments.txt": "<!---->" * 140 + "words",
    "declared.html": "<meta " * 30 + "charset=" + " " * 3_500 + "><p>words",
    "spaces.html": "<ul><li>" + "&nbsp;" * 40_000 + "x<li>words</ul>",
    "script.html": "<p>words" + "<script a" * 60_000,
    "closed.html": "<p>words<style " + "/ " * 200_000,
    "tables.html": "<table><tr><td>" * 20_000 + "words",
    "ends.html": "<i>" * 400_000 + "</b>" * 400_000 + "words",
    "blocks.html": "<b><div>" + "<div>x" * 100_000 + "</b>" * 400_000 + "words",
    "items.html": "<ol><li>" * 60_000 + "words",
    "times.txt": ("12:30 1-1-1 " + " " * 2_000 + "-" + " " * 2_000 + "x\n") * 100,
    "columns.csv": ",".join(f"c{at}" for at in range(60_000)) + "\n" + "x\n" * 60_000,
    "heading.md": "# a" + " #" * 2_400 + "x\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_that_were_made_to_take_for_ever(name: str, tmp_path: Path) -> None:
    """Each of these took minutes, or the age of the world; a test that hangs here is the failure."""
    path = tmp_path / name
    path.write_text(HOSTILE[name])
    assert load(path).text
