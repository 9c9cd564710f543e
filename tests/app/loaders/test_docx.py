"""Word documents: what the library that reads them does not know is read all the same."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from app.errors import LoadError
from app.loaders import load
from tests.app.loaders.files import WORD, parts_of, write_docx, write_zip

MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
VML = "urn:schemas-microsoft-com:vml"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
SHAPE = "http://schemas.microsoft.com/office/word/2010/wordprocessingShape"
NAMED = (
    f'xmlns:m="{MATH}" xmlns:mc="{MC}" xmlns:v="{VML}" xmlns:a="{DRAWING}/main" '
    f'xmlns:wp="{DRAWING}/wordprocessingDrawing" xmlns:wps="{SHAPE}"'
)


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def text_of(folder: Path, *inner: str) -> str:
    """Of a document with a paragraph of each."""
    body = "".join(f"<w:p {NAMED}>{part}</w:p>" for part in inner)
    parsed = load(write_docx(folder / "a.docx", [], extra=body))
    parsed.check_integrity()
    return parsed.text


def test_simple_fields_are_read(tmp_path: Path) -> None:
    field = '<w:fldSimple w:instr="{}"><w:fldData>QUJD</w:fldData>{}</w:fldSimple>'
    caption = run("Table ") + field.format(" SEQ Table ", run("7")) + run(": Dear ")
    name = field.format(" MERGEFIELD Name ", run("Mrs Miller &amp; Co. \r\n"))
    assert text_of(tmp_path, caption + name + run(".")) == "Table 7: Dear Mrs Miller & Co. ."


def math(inner: str) -> str:
    return f"<m:oMath>{inner}</m:oMath>"


def term(text: str) -> str:
    return f"<m:r><m:rPr/><w:rPr/><m:t>{text}</m:t></m:r>"


def sign(tag: str, text: str) -> str:
    return f"<m:{tag}>{text}</m:{tag}>"


X, Y, SUM = sign("e", term("x")), sign("e", term("y")), sign("e", term("a+b"))
TWO = sign("sup", term("2"))


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (f"{term('E=m')}<m:sSup>{sign('e', term('c'))}{TWO}</m:sSup>", "E=mc^2"),
        (f"<m:f><m:fPr/>{sign('num', term('1'))}{sign('den', term('a+b'))}</m:f>", "1/(a+b)"),
        (f"{term('f')}<m:d>{X}</m:d>", "f(x)"),
        (f'<m:d><m:dPr><m:begChr m:val="["/><m:sepChr m:val=",,"/><m:endChr/></m:dPr>{X}{Y}</m:d>', "[x,y"),
        (f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>{sign("sub", term("i=1"))}{X}</m:nary>', "∑_(i=1)x"),
        (f"<m:rad>{sign('deg', term('3'))}{SUM}</m:rad>", "3√(a+b)"),
        (f"<m:rad><m:deg/>{X}</m:rad>", "√x"),
        (f"<m:func>{sign('fName', term('sin'))}{X}</m:func>", "sin x"),
        (f"<m:m>{sign('mr', X + Y)}{sign('mr', X + X)}</m:m>", "x, y; x, x"),
        (f"<w:del>{term('gone')}</w:del>{term('a&lt;b')}", "a<b"),
    ],
)
def test_equations_are_read_on_one_line(inner: str, said: str, tmp_path: Path) -> None:
    assert text_of(tmp_path, run("So ") + math(inner) + run(" holds.")) == f"So {said} holds."
    assert text_of(tmp_path, f"<m:oMathPara><m:oMathParaPr/>{math(inner)}</m:oMathPara>") == said


def test_readings_of_characters_are_left_out(tmp_path: Path) -> None:
    reading, base = sign("rt", run("とうきょう")), sign("rubyBase", run("東京"))
    ruby = f"<w:r><w:ruby><w:rubyPr/>{reading}{base}</w:ruby></w:r>".replace("m:", "w:")
    assert text_of(tmp_path, run("In ") + ruby + run(".")) == "In 東京."


@pytest.mark.parametrize("tag", ["bdo", "dir"])
def test_directions_of_text_are_opened(tag: str, tmp_path: Path) -> None:
    assert text_of(tmp_path, run("a ") + f'<w:{tag} w:val="rtl">{run("שלום")}</w:{tag}>') == "a שלום"


def test_carriage_returns_and_placed_tabs_divide_words(tmp_path: Path) -> None:
    assert text_of(tmp_path, run("one") + "<w:r><w:cr/></w:r>" + run("two")) == "one\ntwo"
    assert text_of(tmp_path, run("one") + '<w:r><w:ptab w:alignment="right"/></w:r>' + run("two")) == "one two"


BOX = f"<w:txbxContent><w:p>{run('In a box.')}</w:p></w:txbxContent>"
SHAPED = (
    "<w:drawing><wp:anchor><a:graphic><a:graphicData>"
    f"<wps:wsp><wps:txbx>{BOX}</wps:txbx></wps:wsp></a:graphicData></a:graphic></wp:anchor></w:drawing>"
)
OLDER = f"<w:pict><v:shape><v:path/><v:textbox>{BOX}</v:textbox></v:shape></w:pict>"
CHOICE = f'<mc:Choice Requires="wps">{SHAPED}</mc:Choice>'


@pytest.mark.parametrize(
    "box",
    [
        SHAPED,
        OLDER.replace("shape>", "oval>"),
        f"<mc:AlternateContent>{CHOICE}</mc:AlternateContent>",
        f"<mc:AlternateContent>{CHOICE}{CHOICE}<mc:Fallback><w:pict/></mc:Fallback></mc:AlternateContent>",
        f"<mc:AlternateContent>{CHOICE}<mc:Fallback>{OLDER}</mc:Fallback></mc:AlternateContent>",
        f"<mc:AlternateContent>{CHOICE}<mc:Fallback><mc:AlternateContent>{CHOICE}<mc:Fallback>{OLDER}</mc:Fallback>"
        "</mc:AlternateContent></mc:Fallback></mc:AlternateContent>",
    ],
    ids=["drawing", "older", "no fallback", "mute fallback", "fallback", "fallback within"],
)
def test_text_boxes_are_read_once(box: str, tmp_path: Path) -> None:
    assert text_of(tmp_path, run("Before") + f"<w:r>{box}</w:r>" + run(" it.")) == "Before it.\n\nIn a box."


def test_notes_are_read_in_the_same_way(tmp_path: Path) -> None:
    path = write_docx(tmp_path / "a.docx", [], extra=f'<w:p>{run("A")}<w:r><w:footnoteReference w:id="2"/></w:r></w:p>')
    field = f'<w:p><w:fldSimple w:instr="DATE">{run("a note")}</w:fldSimple></w:p>'
    notes = f'<w:footnotes xmlns:w="{WORD}"><w:footnote w:id="2">{field}</w:footnote></w:footnotes>'
    assert "a note" in load(write_zip(path, parts_of(path) | {"word/footnotes.xml": notes})).text


def test_what_stays_unknown_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    odd = "".join(f"<w:odd{number}>{run('lost')}</w:odd{number}>" for number in range(30))
    with caplog.at_level(logging.WARNING):
        assert text_of(tmp_path, run("kept") + odd * 3 + '<w:permStart w:id="1"/>' + OLDER) == "kept\n\nIn a box."
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'a.docx'}: elements of 30 unknown kinds are left out: "
        + ", ".join(f"w:odd{number}" for number in range(10))
    ]


def test_entities_of_a_part_that_is_written_anew_are_not_expanded(tmp_path: Path) -> None:
    """Such a part stays as it is, since no office program writes one."""
    path = write_docx(tmp_path / "a.docx", [], extra=f"<w:p>{run('&amp;e;')}<w:bdo>{run('lost')}</w:bdo></w:p>")
    document = parts_of(path)["word/document.xml"]
    assert isinstance(document, bytes)
    declared = '<!DOCTYPE x [<!ENTITY e "said">]>' + document.decode()
    assert load(write_zip(path, parts_of(path) | {"word/document.xml": declared})).text == "&e;"


def test_deep_nests_are_read_or_refused(tmp_path: Path) -> None:
    """Without what is opened there are none; a test that hangs here is the failure."""
    opened, closed = "<mc:AlternateContent><mc:Fallback>", "</mc:Fallback></mc:AlternateContent>"
    assert text_of(tmp_path, opened * 20_000 + run("x") + closed * 20_000) == "x"
    with pytest.raises(LoadError, match="nests its content too deep"):
        text_of(tmp_path, math("<m:e>" * 20_000 + "</m:e>" * 20_000))
