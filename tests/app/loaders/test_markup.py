"""HTML to Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from app.loaders import load, parse
from app.loaders.base import LONGEST_TITLE
from app.loaders.html import markdown_of
from app.loaders.markup import RAW_TEXT, MarkdownWriter
from tests.app.loaders.files import write_epub, write_notebook


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<p>one<p>two", "one\n\ntwo"),
        ("<h1>A <b>b</b></h1>text<h3>C\nd</h3>", "# A b\n\ntext\n\n### C d"),
        ("a<script>x<y</script><style>p{}</style><!-- no --><template>t</template> b", "a b"),
        ("  a \n b&nbsp; <i>c</i>d &amp; &lt;e&gt;", "a b\xa0 cd & <e>"),
        ("a<br>b<br/> c", "a\nb\nc"),
        ('<a href="x">link</a> <img src="i" alt="a lamp">', "link a lamp"),
        ("<ul><li>a<li>b<ul><li>c</ul><li>d</ul>e", "- a\n- b\n  - c\n- d\n\ne"),
        ("<ol><li>a</li><li><p>b</p><p>c</p></li></ol>", "1. a\n2. b\n\n   c"),
        ("<blockquote><p>a</p>b</blockquote>c", "> a\n\n> b\n\nc"),
        ("<pre><code class='language-py'>if x:\n    y &lt; 1\n</code></pre>", "```py\nif x:\n    y < 1\n```"),
        ("<pre>a ``` b</pre>", "````\na ``` b\n````"),
        ("<table><tr><th>a<th>b|c<tr><td>1<td><p>2</p></table>", "| a | b\\|c |\n| --- | --- |\n| 1 | 2 |"),
        ("<table><tr><td>one column</table>", "one column"),
        ("</div></p>text</td>", "text"),
        ("<td>cell</td> without a table", "cell\n\nwithout a table"),
        ("<svg><title>no</title></svg>yes", "yes"),
        ("a <title>T</title> b", "a b"),
        ("<svg><path><text>t</text><p>a</p>b", "a\n\nb"),
        ("<svg><title>no</title><path/><g><p>a</p></g>", "a"),
        ("<svg><svg><p>a</p></svg></svg>b", "a\n\nb"),
        ("<math><mrow><math><p>a", "a"),
        ("<svg><foreignObject><svg><p>no</p></svg></foreignObject></svg>yes", "yes"),
        ("<svg><foreignObject><p>no</p></foreignObject></svg>yes", "yes"),
        (
            "10<sup>6</sup> m, x<sup>n-1</sup>, (a+b)<sup>2 </sup>c, 1995.<sup>3</sup>",
            "10^6 m, x^(n-1), (a+b)^2 c, 1995.^3",
        ),
        ("1<sup>st</sup> word<sup>TM</sup> a <sup>b</sup> c<sup>*</sup><br><sup>2</sup>H", "1st wordTM a b c*\n2H"),
        ("le XX<sup>e</sup> s. 2<sup>e</sup> n<sup>o</sup> 5 3<sup>r</sup> 1<sup>a</sup>", "le XXe s. 2e no 5 3r 1a"),
        ("<i>N</i><sup>o</sup> 7, M<sup>r</sup> X, XX<sup><i>e</i> </sup>s.", "No 7, Mr X, XXe s."),
        ("x<sup>e</sup> kM<sup>r</sup> 2<sup>n</sup> Xa<sup>e</sup> 1<sup>E</sup>", "x^e kM^r 2^n Xa^e 1^E"),
        ("5000<sup><a href='#n'>1</a></sup> and 6<a href='#n'><sup>2</sup></a>", "5000[1] and 6[2]"),
        ("5<sup><a href='#n'>[1]</a></sup> <a href='#m'>mc<sup>2</sup></a>", "5[1] mc^2"),
        ("x<sup>2<sup>b</sup></sup>, y<sup><p>z</p></sup>", "x^2b, y\n\nz"),
        ("is <math alttext='95.3\\%'><mn>95.3</mn><annotation encoding='x-tex'>no</annotation></math>.", "is 95.3\\%."),
        ("a<math><mi>n</mi><annotation encoding='application/x-tex'> n^2 </annotation></math>b", "an^2b"),
        ("<svg><annotation encoding='tex'>n</annotation></svg><math><mi>a</mi></math>b", "b"),
        ("<math alttext='n'><mi>n</mi></math><img aria-hidden=true alt=n> <b aria-hidden=true>c</b>", "n c"),
        (
            "<math alttext='a'></math><span aria-hidden='true'>a<b>c</b></span>d<pre><math alttext=e>",
            "ad\n\n```\ne\n```",
        ),
        ("<p>note<sup>2</sup><span aria-hidden='true'>IMPORTANT TEXT</span> end", "note^2IMPORTANT TEXT end"),
        ("<math alttext='x'></math> be and <i>x</i><span aria-hidden='true'>kept?</span>", "x be and xkept?"),
        ("<math alttext=x></math><p>x<b aria-hidden=true>c</b>", "x\n\nxc"),
        ("a<sup>b<math alttext=x></math></sup>y<i aria-hidden=true>c</i>", "abxyc"),
        ("<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rp>(<rt>じ<rp>)</ruby>を<rt>読</rt>む", "漢字を読む"),
        ("<ruby><rb>漢<rt>かん<rb>字<rt>じ<rt>ji</rt>典</ruby>は<p><ruby>本<rt>ほん</p>x", "漢字典は\n\n本\n\nx"),
        ("<ruby>東<rtc>to <rt>とう</rt> east</rtc>京<rt>kyo<rtc>east<rb>都<rt>と</ruby>x", "東京都x"),
        ("<ruby>東<rt><ruby>とう<rt>to</rt></ruby>う</rt></ruby>x<ruby><ruby>京<rt>a</rt></ruby><rt>b</ruby>", "東x京"),
        ("<ruby>東<rt>a<template><p>b</p></template></rt>京<rt><noscript><div>c</div></noscript></ruby>x", "東京x"),
        ("<ruby>東<rt><select><p>a</select><rt><svg><p>kept</ruby>x", "東\n\nkept\n\nx"),
        ("<ruby>東<rt>とう<p>kept<ul><li>a</ul></ruby><pre><ruby>京<rt>b", "東\n\nkept\n\n- a\n\n```\n京\n```"),
        ("<ol start=3><li>a<li value=7>b<li value=x>c</ol><ol start=-1><li>d", "3. a\n7. b\n8. c\n1. d"),
        ("<ul start=3><li value=4>a</ul><ol start=0><li>b</ol>", "- a\n0. b"),
        ("Smoker: <input type=Checkbox checked=''> yes <input type=checkbox> no <input>", "Smoker: [x] yes [ ] no"),
        ("<input type=checkbox role=button>menu", "menu"),
        ("<pre><div>a</div><div>b</div>c</pre>", "```\na\nb\nc\n```"),
        ("<pre><div><table><tr><td><pre>a</pre>b</td></tr></table></div></pre>c", "```\na\nb\n```\n\nc"),
        ("<table><tr><td><pre><i><ul><li><pre>a</pre></ul></i></pre>b<td>c</table>d", "```\na\n```\n\nb\n\nc\n\nd"),
    ],
)
def test_html_becomes_markdown(html: str, markdown: str) -> None:
    assert markdown_of(html)[0] == markdown


HEAD = "<tr><th>a<th>b<th>c"
LINES = "| a | b | c |\n| --- | --- | --- |\n"


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("<tr><td rowspan=2>x<td>1<td>2<tr><td>3<td>4<tr><td>y", "| x | 1 | 2 |\n| x | 3 | 4 |\n| y |"),
        ("<tr><td>1<td rowspan=3>x<td>2<tr><td>3<tr><td>4<td>5", "| 1 | x | 2 |\n| 3 | x |\n| 4 | x | 5 |"),
        ("<tr><td>1<td>2<td rowspan=2>x<tr><td>3", "| 1 | 2 | x |\n| 3 |  | x |"),
        ("<tr><td colspan=2>Total<td>9", "| Total | Total | 9 |"),
        ("<tr><td colspan=100>Europe<tr><td>1<td>2<td>3", "| Europe |\n| 1 | 2 | 3 |"),
        ("<tr><td rowspan=2>x<td>1<td>2<tr><td colspan=2>none", "| x | 1 | 2 |\n| x | none | none |"),
        ("<tr><td rowspan=2 colspan=2>x<td>1<tr><td>2", "| x | x | 1 |\n| x | x | 2 |"),
        ("<tr><td rowspan=3>x<td>1<tr><tr><td>2", "| x | 1 |\n| x | 2 |"),
        ("<tr><td rowspan=0>x<td>1<tbody><tr><td>2", "| x | 1 |\n| 2 |"),
        ("<tbody><tr><td rowspan=0>x<td>1<tr><td>2<tfoot><tr><td>3", "| x | 1 |\n| x | 2 |\n| 3 |"),
    ],
)
def test_a_cell_stands_wherever_it_reaches(rows: str, lines: str) -> None:
    assert markdown_of(f"<table>{HEAD}{rows}</table>")[0] == LINES + lines


@pytest.mark.parametrize(
    "page",
    [
        "<table><tr>" + "<td rowspan=999999999 colspan=999999999>x" * 9 + "<tr><td>y" * 9,
        "<table><tr>" + "<td rowspan=65534>x" * 3_000 + "<tr><td>y" * 6_000,
        "<table><tr>" + "<td rowspan=65534>" + "x" * 20_000 + "<tr><td>y<td>z" * 6_000,
        "<table><tr>" + "<td rowspan=65534>x" * 3_000 + "<tr>" * 60_000,
        "<table><tr><td>a<td rowspan=9 colspan=1000>x" * 9 + "<tr><td>y" * 6_000,
    ],
)
def test_cells_that_claim_too_much(page: str) -> None:
    assert len(markdown_of(page)[0]) < 20_000 + 20 * len(page)


def test_readings_of_characters_are_left_out_wherever_pages_stand(tmp_path: Path) -> None:
    page = "<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字</ruby>を読む</p>"
    result = {"output_type": "display_data", "data": {"text/html": page}}
    printed = {"cell_type": "code", "source": "", "outputs": [result]}
    assert load(write_epub(tmp_path / "a.epub", {"a.xhtml": page})).text == "漢字を読む"
    assert load(write_notebook(tmp_path / "a.ipynb", [printed])).text == "Output:\n\n```\n漢字を読む\n```"
    mail = b"Subject: S\nContent-Type: text/html; charset=utf-8\n\n" + page.encode()
    assert parse(Path("a.eml"), mail).text == "# S\n\n漢字を読む"


def test_the_title_is_the_pages() -> None:
    page = b"<html><head><meta charset='iso-8859-1'><title> Caf\xe9\n today </title></head><body><h1>H</h1>\x80</body>"
    found = parse(Path("a.html"), page)
    assert (found.title, found.text) == ("Café today", "# H\n\n€")
    assert parse(Path("a.html"), b"<h1>Heading</h1>").title == "Heading"
    endless = b"<title>" + b"Title " * 50_000 + b"</title>x"
    assert len(parse(Path("a.html"), endless).title) == LONGEST_TITLE, "each chunk is named by it"
    assert parse(Path("a.html"), b"<p>words").title == "a"


def test_a_title_in_the_body_is_no_more_than_itself() -> None:
    found = parse(Path("a.html"), b"<h1>Intro</h1>Plain paragraph.<title>x</title><p>end")
    assert (found.title, found.text) == ("x", "# Intro\n\nPlain paragraph.\n\nend")


@pytest.mark.parametrize(
    "start", ["<?xml version='1.0'?><html>", "<html lang='en' xmlns='http://www.w3.org/1999/xhtml'>"]
)
def test_cdata_of_xhtml_is_text(start: str) -> None:
    body = (
        "<script><![CDATA[no </script>]]></script><!-- <![CDATA[ --><pre><![CDATA[if a < b: <i>1</i> & 2]]></pre><p>end"
    )
    assert parse(Path("a.html"), (start + body).encode()).text == "```\nif a < b: <i>1</i> & 2\n```\n\nend"
    assert parse(Path("a.html"), (start + "<p>a" + "<![CDATA[" * 100_000).encode()).text.startswith("a")
    assert parse(Path("a.html"), b"<p>a<script>'<![CDATA['</script>b<script>']]>'</script>c").text == "abc"


@pytest.mark.parametrize("declared", ["utf-16", "unicode_escape", "no-such", "idna", "utf-7"])
def test_a_wrong_declaration_is_not_believed(declared: str) -> None:
    page = f"<meta charset={declared}><p>größe \\u0041 +AEE-".encode()
    assert parse(Path("a.html"), page).text == "größe \\u0041 +AEE-"


@pytest.mark.parametrize("tag", ["div", "ul><li", "blockquote", "table><tr><td", "b", "pre", "ruby"])
def test_depth_costs_neither_the_stack_nor_the_memory(tag: str) -> None:
    depth = 20_000
    text, _ = markdown_of(f"<{tag}>x" * depth + "deep")
    assert text.count("x") == depth
    assert "deep" in text
    assert len(text) < 50 * depth


@pytest.mark.parametrize("tag", sorted(RAW_TEXT))
def test_raw_text_stays_raw_however_deep(tag: str) -> None:
    """And nothing opens in it, or a page could nest there without an end."""
    writer = MarkdownWriter()
    parser = etree.HTMLParser(target=writer)
    parser.feed("<b>" * 9 + f"<{tag}>" * 99)
    assert (len(writer.deeper_than(0)), len(writer.deeper_than(12))) == (0, 0)
    parser.feed(f"</{tag}>")
    assert len(writer.deeper_than(0)) in (0, 11)
    page = "<i>" * 3_000 + f"<{tag}>" + "a>b " * 9_000 + f"</{tag}>"
    assert markdown_of(page)[0].count("a>b") in (0, 9_000)
    assert "</" not in markdown_of(page)[0].removesuffix("</plaintext>")


TAGS = """
    <p> </p> <ul> <li> </li> </ul> <table> <tr> <td> </td> </tr> </table> <pre> <pre> </pre> </pre> <div> </div>
    <h2> </h2> <blockquote> </blockquote> <br> w w w <b> </b> <ruby> </ruby>
"""


@given(st.lists(st.sampled_from(TAGS.split())))
def test_any_nesting_keeps_every_word_once(parts: list[str]) -> None:
    """In order too, but for text that stands in a table outside of its cells, which browsers move as well."""
    numbered = [f"w{number} " if part == "w" else part for number, part in enumerate(parts)]
    text, _ = markdown_of("".join(numbered))
    words = [part.strip() for part in numbered if part.startswith("w")]
    assert sorted(re.findall(r"w\d+", text)) == sorted(words)
