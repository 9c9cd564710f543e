"""PDF: text, pages, and boxes that hold what they should."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from app.loaders import load
from app.loaders.base import Box
from tests.app.loaders.files import write_pdf


def drawn(
    path: Path, *lines: tuple[float, float, str], size: tuple[float, float] = (300, 400), crop: Box | None = None
) -> Path:
    """A page with texts at places that count from the bottom left."""
    data = BytesIO()
    canvas = Canvas(data, pagesize=(300, 400))
    if crop:
        canvas.setCropBox(crop)
    for x, y, text in lines:
        canvas.drawString(x, y, text)
    canvas.showPage()
    canvas.save()
    path.write_bytes(data.getvalue())
    return path


def test_every_line_has_its_page_and_box(tmp_path: Path) -> None:
    parsed = load(write_pdf(tmp_path / "a.pdf", [["One.", "Two."], ["Three."]]))
    parsed.check_integrity()
    assert parsed.text == "One.\nTwo.\n\nThree."
    assert [(parsed.text[line.start : line.end], line.page) for line in parsed.lines] == [
        ("One.", 1),
        ("Two.", 1),
        ("Three.", 2),
    ]
    # The first baseline is 72 points below the top, the second 15 below it.
    (left, top, right, bottom), second = (line.box for line in parsed.lines[:2])
    assert 72 <= left < right < 110
    assert 60 < top < 72 <= bottom < 76
    assert second[1] - top == pytest.approx(15, abs=0.5)


def test_a_piece_is_located_by_its_lines_only(tmp_path: Path) -> None:
    parsed = load(write_pdf(tmp_path / "a.pdf", [["One.", "Two."], ["Three.", "Four."]]))
    boxes = {parsed.text[line.start : line.end]: line.box for line in parsed.lines}
    start, end = parsed.text.index("Two"), parsed.text.index("Four")
    assert [(place.page, place.label, place.boxes) for place in parsed.locate(start, end)] == [
        (1, "page", (boxes["Two."],)),
        (2, "page", (boxes["Three."],)),
    ]
    assert [place.boxes for place in parsed.locate(start, start)] == [(boxes["Two."],)]
    assert parsed.locate(len(parsed.text), len(parsed.text) + 5) == []


def test_hyphens_at_the_ends_of_lines_stay(tmp_path: Path) -> None:
    parsed = load(drawn(tmp_path / "a.pdf", (50, 350, "a long hyphen-"), (50, 335, "ated word")))
    assert parsed.text == "a long hyphen-\nated word"
    assert [parsed.text[line.start : line.end] for line in parsed.lines] == ["a long hyphen-", "ated word"]


def test_paragraphs_and_columns_are_parted(tmp_path: Path) -> None:
    lines = [(50, 350, "left one"), (50, 336, "left two"), (50, 290, "new paragraph"), (200, 350, "right column")]
    assert load(drawn(tmp_path / "a.pdf", *lines)).text == "left one\nleft two\n\nnew paragraph\n\nright column"


def test_boxes_are_of_the_page_as_it_is_shown(tmp_path: Path) -> None:
    cropped = load(drawn(tmp_path / "a.pdf", (120, 300, "here"), crop=(100, 50, 300, 400))).lines[0].box
    assert cropped[0] == pytest.approx(20, abs=2)  # 120 is 20 from the left edge of what is shown
    assert cropped[3] == pytest.approx(100, abs=4)  # and 300 is 100 below its top
    upright = load(write_pdf(tmp_path / "b.pdf", [["word"]])).lines[0].box
    turned = load(write_pdf(tmp_path / "c.pdf", [["word"]], rotate=90)).lines[0].box
    assert turned[3] - turned[1] == pytest.approx(upright[2] - upright[0], abs=0.1)  # it runs down the page


def test_the_title_is_that_of_the_file_or_its_name(tmp_path: Path) -> None:
    assert load(write_pdf(tmp_path / "a.pdf", [["x"]], title="Fog  signals")).title == "Fog signals"
    assert load(drawn(tmp_path / "b.pdf", (50, 50, "x"))).title == "b"


def test_a_title_of_half_a_character_is_none(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [["x"]], title="half")
    path.write_bytes(path.read_bytes().replace(b"(half)", b"<FEFFD83D>"))
    assert load(path).title == "a"


@pytest.mark.parametrize("crop", [None, (100, 50, 300, 400)])
@pytest.mark.parametrize(
    ("old", "new"),
    [(b"", b""), (b"/Type /Pages", b"/Type /Pages /MediaBox [ 0 0 300 400 ]"), (b"/AP <<", b"/No <<")],
    ids=["its own box", "an inherited box", "not drawn"],
)
def test_what_is_filled_in_is_text(old: bytes, new: bytes, crop: Box | None, tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    canvas = Canvas(str(path), pagesize=(300, 400), cropBox=crop)
    canvas.drawString(120, 300, "Name of applicant:")
    canvas.acroForm.textfield(value="Jane Q. Miller", x=120, y=250, width=150, height=20)
    canvas.showPage()
    canvas.save()
    written = path.read_bytes()
    if b"MediaBox" in new:
        written = written.replace(b"/MediaBox [ 0 0 300 400 ]", b"")
    path.write_bytes(written.replace(old, new))
    parsed = load(path)
    parsed.check_integrity()
    assert parsed.text == "Name of applicant:\n\nJane Q. Miller"
    left, top = (crop[0], crop[3]) if crop else (0, 400)
    (x, _, _, printed), (_, _, _, filled) = (line.box for line in parsed.lines)
    assert (x, printed, filled) == pytest.approx((120 - left, top - 300, top - 250), abs=6)


def test_pages_with_too_many_notes_are_read_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for word in ("one", "two", "three"):
        canvas.acroForm.textfield(value=word, x=120, y=250, width=150, height=20)
        canvas.drawString(120, 300, "printed")
        canvas.showPage()
    canvas.acroForm.textfield(value="four", x=120, y=250, width=150, height=20)
    canvas.acroForm.textfield(value="five", x=120, y=200, width=150, height=20)
    canvas.showPage()
    canvas.save()
    monkeypatch.setattr("app.loaders.pdf.MOST_NOTES", 1)
    assert load(tmp_path / "a.pdf").text.split() == ["printed", "one", "printed", "two", "printed", "three"]
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "what is filled in or noted on page 4 is left out"
    ]


def test_pages_that_are_only_images_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.drawString(72, 700, "Downloaded from a library.")
    for picture in (None, Image.new("L", (8, 8)), Image.new("L", (8, 8)), None):
        canvas.showPage()
        if picture:
            canvas.drawInlineImage(picture, 0, 0, 400, 400)
    canvas.showPage()
    canvas.save()
    assert load(tmp_path / "a.pdf").text.strip() == "Downloaded from a library."
    assert "a.pdf: 2 of 5 pages have images and no text: run OCR first" in caplog.text


def test_a_blank_page_between_others_counts(tmp_path: Path) -> None:
    parsed = load(write_pdf(tmp_path / "a.pdf", [["One."], [], ["Three."]]))
    assert [(page.number, page.start, page.end) for page in parsed.pages] == [(1, 0, 4), (2, 6, 6), (3, 8, 14)]
    assert [place.page for place in parsed.locate(8, 14)] == [3]


def test_threads_may_load_at_once(tmp_path: Path) -> None:
    paths = [write_pdf(tmp_path / f"{n}.pdf", [[f"File {n} page {p}"] for p in range(20)]) for n in range(8)]
    alone = [load(path) for path in paths]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(load, paths * 4)) == alone * 4
