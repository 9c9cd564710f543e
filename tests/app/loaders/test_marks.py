"""Text that looks like Markdown stays text where it becomes Markdown."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.loaders import load, parse
from app.loaders.base import Parsed
from app.loaders.html import markdown_of
from app.loaders.marks import behind, closed, escaped, unescaped, with_paired_fences
from splitter.documents import lines_as_lf
from splitter.structure import outline
from tests.app.loaders.files import write_chart, write_docx, write_epub, write_notebook, write_opendocument, write_pptx

ACTING = ("# A", "###### B", "####### C", "#\tD", "```", "~~~~x", "```py", "== E ==", "= = F =", "G", "---", "----- ",
          "===", r"\# H", r"\```", "> I", "- J", "1. K", "<!--", "#", "#L", "=", "\xa0# M", "|", " ")  # fmt: skip
LINES = st.lists(st.sampled_from(ACTING), min_size=1, max_size=9)
ENDS = ("<br>", " <br> ", "\u2028", "\x85", "<br><br>")
AROUND = ("<p>{}</p>", "<ul><li>{}</ul>", "<ol><li>x<p>{}</ol>", "<ol><li><ol><li>{}</ol></ol>", "<dl><dd>{}</dl>",
          "<blockquote>{}</blockquote>", "<table><tr><td><p>{}<p>a<p>b<p>c<td>d</table>", "<h2>x<div>{}</div></h2>",
          "<table><tr><td>{}<td>{}<tr><td>{}<td>b</table>", "<ul><li><table><tr><td>{}</table></ul>")  # fmt: skip


def headings(text: str) -> list[str]:
    return [region.title for region in outline(lines_as_lf(text), "markdown") if region.form == "heading"]


@given(lines=LINES, end=st.sampled_from(ENDS), around=st.sampled_from(AROUND))
def test_no_line_of_a_page_acts_as_a_mark(lines: list[str], end: str, around: str) -> None:
    """As the splitter reads them; all that it takes for a heading is one of the page."""
    body = end.join(map(escape, lines))
    text, _ = markdown_of(f"<h1>First</h1>{around.replace('{}', body)}<pre># code</pre><h1>Last</h1>")
    assert headings(text) == ["First", *(["x"] if "<h2>" in around else []), "Last"]
    assert "\n```\n# code\n```\n" in text


@given(st.lists(st.sampled_from((*ACTING, "\n", "\n", "\r\n", "\u2029", "  ")), max_size=12).map("".join))
def test_what_is_escaped_comes_back(text: str) -> None:
    assert unescaped(escaped(text)) == text


FENCES = ("```", "````py", "~~~", "~~~~ ", "```x`y", "~~~`", "```~ ", " ```", "    ```", "# A", "a", "")


@given(st.lists(st.sampled_from(FENCES), max_size=9), st.sampled_from(("\n", "\r\n", "\u2028")))
def test_a_fence_ends_with_its_text(lines: list[str], end: str) -> None:
    text = end.join(lines)
    assert headings(f"{closed(text)}\n\n# Last")[-1:] == ["Last"]
    assert closed(closed(text)) == closed(text)
    assert closed(text) == text or headings(f"{text}\n\n# Last")[-1:] != ["Last"]


@given(st.lists(st.sampled_from(FENCES), max_size=9), st.sampled_from(("\n", "\r\n", "\u2028")))
def test_a_fence_that_nothing_closes_is_text(lines: list[str], end: str) -> None:
    text = end.join(lines)
    paired = with_paired_fences(text)
    assert paired.replace("\\", "") == text and with_paired_fences(paired) == closed(paired) == paired
    assert (paired == text) == (closed(text) == text)


def test_many_open_fences_take_linear_time() -> None:
    """A test that hangs here is the failure."""
    assert with_paired_fences("~~~x\n" * 30_000 + "```\n" * 200_000).count("\\") == 30_000


@given(st.lists(st.sampled_from((*ACTING, "\u2028", "\n\n")), min_size=1, max_size=6).map("\n".join))
def test_a_label_stands_on_the_first_line(text: str) -> None:
    first = text.replace("\u2028", "\n").split("\n")[0]
    assert behind("Notes: ", escaped(text)) == f"Notes: {first}{escaped(text)[len(escaped(first)) :]}"
    assert headings(behind("Notes: ", escaped(text))) == []


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p># A</p><p>```</p><p>~~~ x", "\\# A\n\n\\```\n\n\\~~~ x"),
        ("<p>a<br>---<br>b<br>===<p>---<p>== c ==", "a\n\\---\nb\n\\===\n\n---\n\n\\== c =="),
        ("<p>\\# A<p>#1 of #2<p>- a<p>> b<p>| c<p>a # b", "\\\\# A\n\n#1 of #2\n\n- a\n\n> b\n\n| c\n\na # b"),
        ("<ul><li># A<br># B</ul><blockquote># C</blockquote>", "- # A\n  \\# B\n\n> # C"),
        ("<h1># A</h1><h2>a\u2028# b", "# # A\n\n## a # b"),
        ("<table><tr><th># A<th>b<tr><td>c<br>---<td>```</table>", "| # A | b |\n| --- | --- |\n| c --- | ``` |"),
        ("<table><tr><td># A<p>b<tr><td>---</table>", "\\# A\n\nb\n\n---"),
        ("<ul><li>a<li><pre>b</pre><li>c</ul>", "- a\n-\n  ```\n  b\n  ```\n- c"),
        ("<ol><li><table><tr><td>a<td>b</table></ol>", "1.\n   | a | b |\n   | --- | --- |"),
        ("<ol><li>a<li><table><tr><td>#1 b</table></ol>", "1. a\n2. #1 b"),
        ("<ul><li><table><tr><td>|x| is<br>| y</table><li>```<li>#x</ul>", "- |x| is\n  | y\n- ```\n- #x"),
        ("<h1><pre>a</pre></h1><ul><li><table><tr><td><h2>b</h2></table></ul>", "```\na\n```\n\n  ## b"),
    ],
)
def test_how_it_is_written(html: str, text: str) -> None:
    assert markdown_of(html)[0] == text


SAID = ("# One", "```", "a", "~~~")


def docx(folder: Path) -> Parsed:
    paragraphs = [("Heading1", "First"), *(("Normal", line) for line in SAID), ("Heading1", "Last")]
    return load(write_docx(folder / "a.docx", paragraphs))


def pptx(folder: Path) -> Parsed:
    slides = [("First", ["# One\v```\va\v---"]), ("", ["a", "b\v# One\v```"]), ("Last", [])]
    return load(write_pptx(folder / "a.pptx", slides, notes="a\n---\n```"))


def epub(folder: Path) -> Parsed:
    body = "".join(f"<p>{line}</p>" for line in SAID)
    return load(write_epub(folder / "a.epub", {"a.xhtml": f"<h1>First</h1>{body}", "b.xhtml": "<h1>Last</h1>"}))


def odt(folder: Path) -> Parsed:
    body = "".join(f"<text:p>{line}</text:p>" for line in SAID)
    return load(
        write_opendocument(folder / "a.odt", f"<text:h>First</text:h>{body}<text:p>a<text:line-break/>---</text:p>"
                           f"<text:p>b<draw:text-box>{body}</draw:text-box></text:p><text:h>Last</text:h>")
    )  # fmt: skip


def odp(folder: Path) -> Parsed:
    body = "".join(f"<text:p>{line}</text:p>" for line in SAID)
    title = '<draw:frame presentation:class="title"><text:p>{}</text:p></draw:frame>'
    pages = (title.format("First") + f"<draw:frame>{body}</draw:frame>", title.format("Last"))
    return load(write_opendocument(folder / "a.odp", "".join(f"<draw:page>{page}</draw:page>" for page in pages)))


def rtf(_: Path) -> Parsed:
    said = "".join(f"{line}\\par " for line in (*SAID, r"a\line ---"))
    layout = rf"\intbl {said}---\cell\row\pard "
    styles = r"{\stylesheet{\s1 heading 1;}}"
    box = rf"{{\shp{{\*\shpinst{{\shptxt {said}}}}}}}"
    body = rf"\pard\s1 First\par\pard {said}{box}b\par {layout}\pard\s1 Last\par"
    return parse(Path("a.rtf"), rf"{{\rtf1\ansi{styles}{body}}}".encode())


@pytest.mark.parametrize("made", [docx, pptx, epub, odt, odp, rtf])
def test_every_format_keeps_its_headings(made: object, tmp_path: Path) -> None:
    assert callable(made)
    assert headings(made(tmp_path).text) == ["First", "Last"]


def test_a_fence_of_a_cell_or_a_mail_ends_with_it(tmp_path: Path) -> None:
    cells = [{"cell_type": "markdown", "source": source} for source in ("# One\n~~~~\nx\n~~~", "# Two")]
    assert load(write_notebook(tmp_path / "a.ipynb", cells)).text == "# One\n~~~~\nx\n~~~\n~~~~\n\n# Two"
    assert load(write_notebook(tmp_path / "b.ipynb", [*cells, {}, cells[0]])).text.endswith(
        "# Two\n\n# One\n~~~~\nx\n~~~"
    )
    raw = [{"cell_type": "raw", "source": "One\n~~~~\nx"}, cells[1]]
    assert load(write_notebook(tmp_path / "c.ipynb", raw)).text == "One\n\\~~~~\nx\n\n# Two"
    enclosed = "--b\nContent-Type: message/rfc822\n\nSubject: Two\n\ny\n--b--\n"
    mail = f"Subject: One\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\n```\nx\n{enclosed}"
    assert parse(Path("a.eml"), mail.encode()).text == "# One\n\n\\```\nx\n\n## Two\n\ny"


def test_a_printed_page_has_no_backslash(tmp_path: Path) -> None:
    page = r"<p># Rows: 3<p>a<br>---<br>b<pre>\# x</pre><table><tr><td># c<td>\# d</table><p>\---"
    shown = "# Rows: 3\n\na\n---\nb\n\n```\n\\# x\n```\n\n| # c | \\# d |\n| --- | --- |\n\n\\---"
    output = {"output_type": "display_data", "data": {"text/html": page}}
    cell = {"cell_type": "code", "source": "x", "outputs": [output]}
    text = load(write_notebook(tmp_path / "a.ipynb", [cell, {"cell_type": "markdown", "source": "# Last"}])).text
    assert text == f"```python\nx\n```\n\nOutput:\n\n````\n{shown}\n````\n\n# Last"
    assert headings(text) == ["Last"]


def test_the_notes_of_a_slide_stand_behind_their_label(tmp_path: Path) -> None:
    body = "<text:p># a<text:line-break/># b</text:p><text:p># c</text:p>"
    slide = f"<draw:page><presentation:notes>{body}</presentation:notes></draw:page>"
    path = write_opendocument(tmp_path / "a.odp", slide)
    assert load(path).text == "Notes: # a\n\\# b\n\n\\# c"


def test_a_box_of_an_item_keeps_its_mark(tmp_path: Path) -> None:
    item = "<text:list-item><text:p><draw:text-box><text:p>{}</text:p></draw:text-box></text:p></text:list-item>"
    items = "".join(map(item.format, ("#1 x", "|x| y")))
    assert load(write_opendocument(tmp_path / "a.odt", f"<text:list>{items}</text:list>")).text == "- #1 x\n- |x| y"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (r"a{BOX ---\par}}}\par", "a\n\n---\n\nx"),
        (r"a{BOX \s1 b\par\pard c\par}}}\par", "a\n\n# b\n\nc\n\nx"),
        (r"{BOX ---\par}}}{BOX ===\par}}}\par", "---\n\n===\n\nx"),
    ],
)
def test_a_box_in_a_cell_makes_no_heading(cell: str, text: str) -> None:
    cell = cell.replace("BOX", r"\shp{\*\shpinst{\shptxt")
    body = rf"\trowd\cellx1\pard\intbl {cell}\cell\row\pard x"
    assert parse(Path("a.rtf"), rf"{{\rtf1{{\stylesheet{{\s1 heading 1;}}}}{body}}}".encode()).text == text


def test_what_stands_on_one_line_has_no_backslash(tmp_path: Path) -> None:
    row = r"\trowd\cellx1\cellx2\pard\intbl # a\par ---\cell ~~~\cell\row\pard "
    notes = r"x{\footnote # b}{\*\annotation ```}"
    assert parse(Path("a.rtf"), rf"{{\rtf1 {row}{notes}}}".encode()).text == (
        "| # a --- | ~~~ |\n| --- | --- |\n\nx[1]\n\nComment: ```\n\n[1] # b"
    )
    noted = "<text:note><text:note-body><text:p># b</text:p></text:note-body></text:note>"
    told = "<office:annotation><text:p>```</text:p></office:annotation>"
    odt = write_opendocument(tmp_path / "a.odt", f"<text:p>x{noted}{told}</text:p>")
    assert load(odt).text == "x[1]\n\nComment: ```\n\n[1] # b"
    title = '<draw:page><draw:frame presentation:class="title"><text:p># a</text:p></draw:frame></draw:page>'
    assert load(write_opendocument(tmp_path / "a.odp", title)).text == "# # a"


def test_the_title_of_a_chart_is_none(tmp_path: Path) -> None:
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData

    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]  # python-pptx leaves it unannotated
    data.categories = ["a"]
    data.add_series("b", (1,))
    path = write_chart(tmp_path / "a.pptx", "PIE", data)
    presentation = Presentation(str(path))
    presentation.slides[0].shapes[0].chart.chart_title.text_frame.text = "# A"
    presentation.save(str(path))
    assert load(path).text.startswith("\\# A\n\n|  | b |")
