"""PDF: what is filled in on pages that inherit their resources, and what reviewers wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import LoadError
from app.loaders import load, parse
from app.loaders.base import Parsed, ParseLimits

FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica %b >>"
DIFFERENCES = b"/Encoding << /Type /Encoding /Differences [ 65 /X /Y /Z ] >>"


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<< %b /Length %d >>\nstream\n%b\nendstream" % (entries, len(data), data)


def write_objects(path: Path, *objects: bytes) -> Path:
    """A PDF of these objects, which are numbered from 1; the first one is the catalog."""
    written = b"%PDF-1.7\n"
    for number, one in enumerate(objects, 1):
        written += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    path.write_bytes(written + b"trailer << /Root 1 0 R /Size %d >>\n%%%%EOF" % (len(objects) + 1))
    return path


def with_note(path: Path, content: bytes, pages: bytes, page: bytes, notes: bytes = b"/Annots [ 5 0 R ]") -> Path:
    """A page with a note "ABC note"; objects 7 and 8 are fonts, 9 is a form that shows "note"."""
    form = b"/Type /XObject /Subtype /Form /BBox [ 0 0 300 400 ] /Resources << /Font << /F1 8 0 R >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [ 3 0 R ] /Count 1 /MediaBox [ 0 0 300 400 ] %b >>" % pages,
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R %b %b >>" % (notes, page),
        stream(content),
        b"<< /Type /Annot /Subtype /FreeText /F 4 /Rect [ 50 100 350 500 ] /AP << /N 6 0 R >> /Contents (note) >>",
        stream(b"BT /F1 12 Tf 2 2 Td (ABC note) Tj ET", form),
        FONT % DIFFERENCES,
        FONT % b"",
        stream(b"BT /F1 12 Tf 50 300 Td (note) Tj ET", form),
    ]
    return write_objects(path, *objects)


def filled_page(path: Path, drawn: bool) -> Parsed:
    """Two pages that inherit the font of their own text, with the same field on each."""
    page = b"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /Annots [ 6 0 R ] >>"
    look = b"/AP << /N 7 0 R >>" if drawn else b""
    form = b"/Type /XObject /Subtype /Form /BBox [ 0 0 200 20 ] /Resources << /Font << /F1 8 0 R >> >>"
    write_objects(
        path,
        b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [ 6 0 R ] /DR << /Font << /F1 8 0 R >> >> >> >>",
        b"<< /Type /Pages /Kids [ 3 0 R 4 0 R ] /Count 2 /MediaBox [ 0 0 300 400 ] "
        b"/Resources << /Font << /F1 8 0 R >> >> >>",
        page,
        page,
        stream(b"BT /F1 12 Tf 50 300 Td (Name:) Tj ET"),
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (n) /V (Jane) /F 4 /Rect [ 50 250 250 270 ] "
        b"/DA (/F1 12 Tf 0 g) %b >>" % look,
        stream(b"/Tx BMC BT /F1 12 Tf 2 4 Td (Jane) Tj ET EMC", form),
        (FONT % b"").replace(b"Helvetica", b"Times-Roman"),
    )
    return load(path)


@pytest.mark.parametrize(
    ("content", "resources", "text"),
    [
        (b"BT /F1 12 Tf 50 300 Td (ABC body) Tj ET", b"/Resources << /Font << /F1 7 0 R >> >>", "XYZ body"),
        (b"/Fm1 Do", b"/Resources << /XObject << /Fm1 9 0 R >> >>", "note"),
    ],
    ids=["font", "form"],
)
def test_notes_do_not_cost_a_page_its_inherited_resources(
    content: bytes, resources: bytes, text: str, tmp_path: Path
) -> None:
    plain = load(with_note(tmp_path / "a.pdf", content, resources, b"", notes=b""))
    noted = load(with_note(tmp_path / "b.pdf", content, resources, b""))
    own = load(with_note(tmp_path / "c.pdf", content, b"", resources))
    assert plain.text == text
    assert noted.text.split("\n\n") == [text, "ABC note"]
    assert (noted.text, noted.lines) == (own.text, own.lines)
    assert noted.lines[0] == plain.lines[0]


def test_each_page_that_inherits_has_what_is_filled_in_on_it(tmp_path: Path) -> None:
    pages = [filled_page(tmp_path / "a.pdf", drawn=drawn).text for drawn in (True, False)]
    assert pages == ["Name:\n\nJane\n\nName:\n\nJane"] * 2


def test_what_cannot_be_laid_over_its_page_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.loaders.pdf._seen_apart", lambda unchanged, index: ([], False, set()))
    assert filled_page(tmp_path / "a.pdf", drawn=True).text == "Name:\n\nName:"
    told = [record.getMessage().split(": ")[1] for record in caplog.records]
    assert told == [f"what is filled in or noted on page {page} is left out" for page in (1, 2)]


NOTE = b"<< /Type /Annot /Subtype /%b /Contents %b /F %d /Rect [ 50 250 70 270 ] >>"


def noted_page(path: Path, subtype: bytes, contents: bytes, flags: int = 4, up: int = 300) -> Path:
    resources = b"/Resources << /Font << /F1 4 0 R >> >>"
    page = b"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /MediaBox [ 0 0 300 400 ] /Annots [ 6 0 R 6 0 R ] %b >>"
    return write_objects(
        path,
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [ 3 0 R ] /Count 1 >>",
        page % resources,
        FONT % b"",
        stream(b"BT /F1 12 Tf 50 %d Td (printed) Tj ET" % up),
        NOTE % (subtype, contents, flags),
    )


@pytest.mark.parametrize("subtype", [b"Text", b"Highlight", b"Underline", b"StrikeOut", b"Squiggly", b"Caret"])
def test_comments_of_reviewers_are_paragraphs_with_a_place(subtype: bytes, tmp_path: Path) -> None:
    parsed = load(noted_page(tmp_path / "a.pdf", subtype, b"(Wrong number.\\rSee page 2.)"))
    parsed.check_integrity()
    assert parsed.text.split("\n\n") == ["printed", *["Wrong number.\nSee page 2."] * 2]
    assert [line.box for line in parsed.lines[1:]] == [pytest.approx((50, 130, 70, 150), abs=0.1)] * 4


@pytest.mark.parametrize(
    ("subtype", "contents", "flags"),
    [(b"Text", b"(Accepted)", 30), (b"Link", b"(a link)", 4), (b"Text", b"( )", 4), (b"Text", b"7", 4)],
)
def test_what_no_reviewer_wrote_is_no_comment(subtype: bytes, contents: bytes, flags: int, tmp_path: Path) -> None:
    assert load(noted_page(tmp_path / "a.pdf", subtype, contents, flags)).text == "printed"


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (b"(print ed)", "printed"),
        (b"(why?)", "printed\n\nwhy?\n\nwhy?"),
        (b"(print)", "printed\n\nprint\n\nprint"),
        (b"(printed\\rno)", "printed\n\nprinted\nno\n\nprinted\nno"),
    ],
)
def test_a_comment_that_stands_on_the_page_is_not_told_twice(contents: bytes, text: str, tmp_path: Path) -> None:
    """The caption of a measure, or what was marked: as whole words, and all of it."""
    assert load(noted_page(tmp_path / "a.pdf", b"Highlight", contents, up=255)).text == text


def test_comments_of_half_characters_are_text(tmp_path: Path) -> None:
    parsed = load(noted_page(tmp_path / "a.pdf", b"Text", b"<FEFFD83D004100000042DE00>"))
    parsed.check_integrity()
    assert parsed.text == "printed\n\nAB\n\nAB"


def test_comments_are_bounded_before_they_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = noted_page(tmp_path / "a.pdf", b"Text", b"(%b)" % (b"x" * 600))
    copied: list[int] = []

    def lines(_: object, size: int) -> list[str]:
        copied.append(size)
        return ["x"]

    monkeypatch.setattr("app.loaders.comments._lines", lines)
    with pytest.raises(LoadError, match="million characters"):
        parse(path, path.read_bytes(), ParseLimits(max_characters=1_000))
    assert len(copied) == 1
