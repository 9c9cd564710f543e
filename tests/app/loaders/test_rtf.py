"""RTF: groups, code pages, what is skipped, and the structure of paragraphs and tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import LoadError
from app.loaders import parse
from app.loaders.base import Parsed, ParseLimits
from app.loaders.rtf import DEEPEST

STYLES = r"{\stylesheet{\s0 Normal;}{\s1\b heading 1;}{\s2 Title;}{\s3\outlinelevel2 Mine;}{\*\cs4 heading 9;}}"
FONTS = rb"{\fonttbl{\f0\fcharset0 A;}{\f1\fcharset204 B;}{\f2\fcharset128 C;}}"


def read(body: str | bytes, head: str = r"\ansi\ansicpg1252\deff0", limits: ParseLimits | None = None) -> Parsed:
    raw = body if isinstance(body, bytes) else body.encode("ascii")
    parsed = parse(Path("a.rtf"), rb"{\rtf1" + head.encode() + b" " + raw + b"}", limits)
    parsed.check_integrity()
    return parsed


def test_paragraphs_and_what_is_in_them() -> None:
    parsed = read("One {\\b bold}\r\n word\\line next\\tab tab\\par\nTwo \\{a\\}\\\\b\\~c\\-d\\_e\\emdash f\\\nThree")
    assert (parsed.kind, parsed.title, parsed.pages) == ("markdown", "a", ())
    assert parsed.text == "One bold word\nnext tab\n\nTwo {a}\\b cd-e—f\n\nThree"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb"caf\'e9 \'80", "café €"),
        (b"caf\xe9", "café"),
        (rb"\u233?t\u-10179?\u-8704?", "ét\U0001f600"),
        (rb"\uc0\u233 t{\uc2\u21644\'98\'5c}\u233", "ét和é"),
        (rb"\u233{}?x", "é?x"),
        (rb"\u233\'3fx\u233\tab x", "éxéx"),
        (FONTS + rb"\f1\'ef\'f0 {\f2\'93\'8c\'8b\'9e}\'e0", "пр 東京а"),
        (rb"{\fonttbl{\f3\fnil\cpg1253 G;}}{\f3\'e1}\plain\'e9", "αé"),
        (rb"{\upr{ansi}{\*\ud{\u26481?}}}", "東"),
        (rb"\u55357 x", "\N{REPLACEMENT CHARACTER}"),
    ],
)  # fmt: skip
def test_characters(body: bytes, text: str) -> None:
    assert read(body).text == text


@pytest.mark.parametrize(
    ("head", "body", "text"),
    [
        (r"\ansicpg1250", rb"\'e8", "č"),
        (r"\ansicpg65001", "č".encode(), "č"),
        (r"\mac", rb"\'8e", "é"),
        (r"\pc", rb"\'82", "é"),
        (r"\ansicpg936", rb"\'d6\'d0", "中"),
        (r"\ansicpg77777", rb"\'e9", "é"),
    ],
)
def test_code_pages(head: str, body: bytes, text: str) -> None:
    assert read(body, head).text == text


def test_headings_are_told_by_styles_and_outlines() -> None:
    parsed = read(
        rf"{STYLES}{{\info{{\title A {{title}}}}{{\author Ann}}}}\pard\s2 Log\par\pard\s1{{\b March}}\par"
        r"\pard\s3 Day\par\pard\outlinelevel1 Hour\par\pard\outlinelevel9 Fog.\par\s4 Rain."
    )
    assert parsed.text == "# Log\n\n# March\n\n### Day\n\n## Hour\n\nFog.\n\nRain."
    assert parsed.title == "A title"
    assert read(rf"{STYLES}\pard\s1 March\par x").title == "March"


def test_lists() -> None:
    items = (
        r"{\listtext\'b7\tab}\ls1 one\par",
        r"{\listtext\'b7\tab}\ls1\ilvl1 in\par",
        r"\pard{\pntext 2.\tab}two\par",
    )
    assert read(r"\pard ".join(items) + r"\pard End.").text == "- one\n  - in\n2. two\n\nEnd."
    assert read(r"{\listtext 1.2.10.}one\line more\par").text == "1.2.10. one\n        more"
    endless = r"{\listtext " + "1." * 2_000 + "}" + r"a\line " * 2_000
    assert len(read(endless).text) < 2 * len(endless), "each line is indented by the mark"


def test_tables_end_with_their_rows() -> None:
    row = r"\trowd\cellx1\cellx2\pard\intbl {}\cell {}\cell\row "
    nested = r"{\pard\intbl\itap2 in\nestcell{\nonesttables\par no}{\*\nesttableprops\nestrow}}"
    parsed = read(
        r"Before.\par " + row.format("a", r"b\par c") + row.format("1", "|") + r"\pard Between.\par "
        + row.format("x", nested) + r"\pard\intbl cut"
    )  # fmt: skip
    assert parsed.text == (
        "Before.\n\n| a | b c |\n| --- | --- |\n| 1 | \\| |\n\nBetween.\n\n| x | in; |\n| --- | --- |\n\ncut"
    )
    assert read(r"\trowd\pard\intbl One\par two\cell\row\pard Three").text == "One\ntwo\n\nThree"


def test_notes_comments_and_boxes() -> None:
    parsed = read(
        r"The lamp{\super\chftn{\footnote\pard{\super\chftn} Of \i brass.\par Old.}} burns"
        r"{\*\atnid AB}{\*\atnauthor Ann B}{\*\annotation{\*\atndate 1}Is it?}.\par"
        r"{\shp{\*\shpinst\shpleft1{\sp{\sn name}{\sv value}}{\shptxt In a box.\par Two.\par}}{\shprslt old}}End."
        r"{\footnote x}"
    )
    assert parsed.text == (
        "The lamp[1] burns.\n\nComment by Ann B: Is it?\n\nEnd.[2]\n\nIn a box.\n\nTwo.\n\n[1] Of brass. Old.\n\n[2] x"
    )


def test_what_is_no_text_of_the_document() -> None:
    binary = rb"{\pict\pngblip\bin12 }}}{{{\'zz\\x}"
    told = rb"{\header head}{\footer foot}{\*\generator Word}{\pict 89504e47}{\colortbl;\red1;}{\object{\*\objdata 00}}"
    field = rb'{\field{\*\fldinst HYPERLINK "http://x.example"}{\fldrslt link}}{\fldinst PAGE}'
    hidden = rb"{\v hidden}\v hidden\v0 {\deleted gone}\deleted gone\plain{\revised new}"
    parsed = read(told + rb"Kept " + binary + field + b" " + hidden + rb"{\xe index}\unknown7 {\*\mine x{\rtlch y}}.")
    assert parsed.text == "Kept link new."


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r"{\info{\upr{\author ????}{\*\ud\uc0{\author \u1048}}}{\upr{\title ?}{\*\ud{\title A}}}}Words", "Words"),
        (r"One {\*} \b two\b0\par Three", "One two\n\nThree"),
        (r"One {two\* \b three} four", "One two three four"),
        ("{\r\n\\*\\mine no}Words", "Words"),
        (r"Kept{\deleted\v0 gone}{\v\deleted0 hid}{\mvf moved}{\deleted\v gone\plain , too}", "Kept, too"),
        (r"{\footnote\footnote x}Words", "[1]Words"),
    ],
)
def test_groups_that_hide_no_more_than_their_own(body: str, text: str) -> None:
    assert read(body).text.startswith(text)


@pytest.mark.parametrize(
    ("fonts", "text"),
    [(rb"{\f0\fcharset0 A;}{\f1\fcharset204 B;}", "café й"), (rb"{\f0\fcharset0 A;}{\f1\fcharset2 S;}", "cafй й")],
)
def test_the_charset_of_the_west_is_one_beside_others_only(fonts: bytes, text: str) -> None:
    assert read(rb"{\fonttbl" + fonts + rb"}\f0 caf\'e9 {\f1\'e9}", r"\ansi\ansicpg1251").text == text


def test_names_have_whole_characters() -> None:
    said = (
        r"{\info{\title A \u-10179?\u-8704?{\b\u55357?}\u56833? B}}x{\*\atnauthor \u-10179?\u-8704?}{\*\annotation y}"
    )
    parsed = read(said)
    assert (parsed.title, parsed.text) == ("A \U0001f600\U0001f601 B", "x\n\nComment by \U0001f600: y")


def test_a_long_author_is_cut() -> None:
    comments = r"{\*\atnauthor " + "A" * 100_000 + "}" + r"{\*\annotation x}" * 300
    assert len(read(comments).text) < 100_000


def test_a_document_that_is_cut_short_keeps_what_is_there(caplog: pytest.LogCaptureFixture) -> None:
    for tail in (b"", b"\\", b"\\'", b"{\\footnote note", b"\\bin99999999 x", b"{\\*", b"{\\pict 89"):
        caplog.clear()
        assert parse(Path("a.rtf"), rb"{\rtf1 Words" + tail).text.startswith("Words")
        assert "a.rtf: is cut short: it ends amid its text" in caplog.text
    caplog.clear()
    assert parse(Path("a.rtf"), b"\xef\xbb\xbf\n{\\rtf1 Words}\0{} behind }}").text == "Words"
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.rtf", b"just words", "is no RTF document: it does not start as one"),
        ("a.rtf", b"\x89PNG\r\n\x1a\n" + bytes(9), "is a PNG image, not an RTF document as its name says"),
        ("a.txt", rb"{\rtf1 x}", "is an RTF document, not text as its name says: rename it to end in .rtf"),
        ("a.docx", rb"{\rtf1 x}", "is an RTF document, not a Word document as its name says: rename it to end in .rtf"),
        ("a.rtf", rb"{\rtf1{\pict 00}}", "holds no text"),
        ("a.rtf", rb"{\rtf1", "holds no text"),
    ],
)
def test_what_is_no_rtf(name: str, data: bytes, told: str) -> None:
    with pytest.raises(LoadError, match=told.replace("(", "\\(")):
        parse(Path(name), data)


def test_groups_within_each_other_are_bounded() -> None:
    assert read("{" * (DEEPEST - 1) + "deep" + "}" * (DEEPEST - 1)).text == "deep"
    with pytest.raises(LoadError, match="nests its content too deep to be read as an RTF document"):
        read("{" * 1_000_000)


def test_many_characters_are_refused() -> None:
    with pytest.raises(LoadError, match="million characters of text"):
        read("word " * 30_000, limits=ParseLimits(max_characters=100_000))


HOSTILE = {
    "groups": "{" + "}{" * 300_000 + "}",
    "cells": "x\\cell " * 300_000 + "\\row ",
    "rows": "x\\cell\\row " * 200_000,
    "notes": "{\\footnote x}" * 100_000,
    "notes in notes": "{\\footnote " * 900 + "x" + "}" * 900,
    "comments": "{\\*\\annotation x}" * 100_000,
    "boxes in boxes": "{" + "\\shptxt" * 100_000 + " " + "word " * 1_000_000 + "}",
    "unicode": "\\u233?" * 300_000,
    "fonts": "{\\fonttbl" + "{\\f1\\fcharset204 x;}" * 100_000 + "}x",
    "marks": "{\\listtext 1.}" * 200_000 + "x",
    "levels": "\\ilvl2000000000{\\listtext 1.}x\\par " * 1_000,
    "pictures": "{\\pict " + "00" * 2_000_000 + "}x",
    "words": "\\" + "a" * 3_000_000 + " x",
    "numbers": "\\u" + "9" * 1_000_000 + " x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_that_were_made_to_take_for_ever(name: str) -> None:
    """A test that hangs here is the failure."""
    assert read(HOSTILE[name] + " words").text
