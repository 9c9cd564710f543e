"""OpenDocument texts, and what the other two kinds have in common with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import LoadError
from app.loaders import load
from app.loaders.base import Parsed, ParseLimits
from tests.app.loaders.files import parts_of, write_docx, write_opendocument, write_zip

STYLES = """
<style:style style:name="P1" style:parent-style-name="P2"/>
<style:style style:name="P2" style:parent-style-name="Title"/>
<style:style style:name="loop" style:parent-style-name="loop"/>
<text:list-style style:name="L1"><text:list-level-style-number text:level="1" style:num-format="1"/>
<text:list-level-style-bullet text:level="2"/></text:list-style>
"""


def read(tmp_path: Path, body: str) -> Parsed:
    parsed = load(write_opendocument(tmp_path / "a.odt", body, STYLES))
    parsed.check_integrity()
    return parsed


def test_headings_paragraphs_and_their_white_space(tmp_path: Path) -> None:
    parsed = read(
        tmp_path,
        '<text:p text:style-name="P1">Keeper\'s <text:span>log</text:span></text:p>\n'
        '<text:h text:outline-level="2">Fog &amp; rain</text:h><text:h text:outline-level="9">Deep</text:h>'
        '<text:p text:style-name="loop">One<text:s text:c="9"/>two<text:tab/>three<text:line-break/>four.</text:p>'
        "<text:section><text:p><text:a>A link</text:a><text:bookmark/> goes on.</text:p></text:section>",
    )
    assert (parsed.kind, parsed.title, parsed.pages) == ("markdown", "Keeper's log", ())
    assert parsed.text == ("# Keeper's log\n\n## Fog & rain\n\n###### Deep\n\nOne two three\nfour.\n\nA link goes on.")


def test_the_title_of_the_document_is_its_own(tmp_path: Path) -> None:
    path = write_opendocument(tmp_path / "a.odt", "<text:h>One</text:h><text:p>x</text:p>", title=" A \n title ")
    assert load(path).title == "A title"


def test_lists(tmp_path: Path) -> None:
    inner = "<text:list><text:list-item><text:p>inner</text:p></text:list-item></text:list>"
    items = f"<text:list-item><text:p>one</text:p>{inner}</text:list-item>"
    items += "<text:list-item><text:p>two</text:p></text:list-item>"
    more = '<text:list text:style-name="L1" text:continue-numbering="true"><text:list-item><text:p>three</text:p>'
    at = '<text:list-item text:start-value="9"><text:p>nine</text:p></text:list-item>'
    text = read(
        tmp_path,
        f'<text:list text:style-name="L1">{items}</text:list><text:p>Between.</text:p>{more}</text:list-item>{at}'
        "</text:list><text:list><text:list-item><text:p>bullet</text:p></text:list-item></text:list>",
    ).text
    assert text == "1. one\n  - inner\n2. two\n\nBetween.\n\n3. three\n9. nine\n- bullet"


def test_styles_of_lists_may_stand_in_a_part_of_their_own(tmp_path: Path) -> None:
    body = '<text:list text:style-name="L1"><text:list-item><text:p>one</text:p></text:list-item></text:list>'
    path = write_opendocument(tmp_path / "a.odt", body)
    whole = parts_of(write_opendocument(tmp_path / "b.odt", body, STYLES))["content.xml"]
    assert load(write_zip(path, parts_of(path) | {"styles.xml": whole})).text == "1. one"
    assert load(write_zip(path, parts_of(path) | {"styles.xml": "no XML"})).text == "- one"


def test_tables(tmp_path: Path) -> None:
    wide = '<table:table-cell table:number-columns-spanned="2"><text:p>both</text:p></table:table-cell>'
    covered = "<table:covered-table-cell><text:p>hidden</text:p></table:covered-table-cell>"
    cells = "".join(f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in "abc")
    rows = f"<table:table-header-rows><table:table-row>{cells}</table:table-row></table:table-header-rows>"
    last = "<table:table-cell><text:p>last</text:p></table:table-cell>"
    row = f"<table:table-row>{wide}{covered}{last}</table:table-row>"
    text = read(tmp_path, f"<table:table>{rows}{row}</table:table>").text
    assert text == "| a | b | c |\n| --- | --- | --- |\n| both | both | last |"


def test_notes_and_comments(tmp_path: Path) -> None:
    note = "<text:note-citation>i</text:note-citation><text:note-body><text:p>Of {}.</text:p></text:note-body>"
    note = f"<text:note>{note}</text:note>"
    comment = (
        "<office:annotation><dc:creator>Ann</dc:creator><dc:date>2026-11-30</dc:date><text:p>Is it?</text:p>"
        "<text:p>Ask.</text:p><office:annotation><text:p>inner</text:p></office:annotation></office:annotation>"
    )
    text = read(
        tmp_path,
        f"<text:p>The lamp{note.format('colza')} burns{comment}.</text:p><text:p>On{note.format('iron')}.</text:p>"
        "<text:p><office:annotation><text:p>Nobody's.</text:p></office:annotation></text:p>",
    ).text
    assert text == (
        "The lamp[1] burns.\n\nComment by Ann: Is it? Ask.\n\nOn[2].\n\nComment: Nobody's.\n\n"
        "[1] Of colza.\n\n[2] Of iron."
    )


def test_what_is_no_text_of_the_document(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deleted = "<text:changed-region><text:deletion><text:p>deleted</text:p></text:deletion></text:changed-region>"
    parsed = read(
        tmp_path,
        f"<text:tracked-changes>{deleted}</text:tracked-changes><office:forms><text:p>form</text:p></office:forms>"
        "<text:table-of-content><text:index-body><text:p>contents 3</text:p></text:index-body></text:table-of-content>"
        "<text:p><text:change-start/>Inserted.<text:change-end/> <text:ruby><text:ruby-base>東</text:ruby-base>"
        "<text:ruby-text>ひがし</text:ruby-text></text:ruby><draw:frame><draw:object><text:p>chart</text:p></draw:object>"
        "<draw:image><office:binary-data>AAAA</office:binary-data></draw:image><svg:title>t</svg:title></draw:frame></text:p>"
        "<text:p><draw:frame><draw:text-box><text:p>In a box.</text:p></draw:text-box></draw:frame></text:p>",
    )
    assert parsed.text == "Inserted. 東\n\nIn a box."
    assert "a.odt: left out are 1 embedded objects" in caplog.text


def test_boxes_stand_behind_the_paragraph_that_holds_them(tmp_path: Path) -> None:
    inner = "<text:list><text:list-item><text:p>point</text:p></text:list-item></text:list>"
    box = f"<draw:frame><draw:text-box><text:h>Top</text:h>{inner}</draw:text-box></draw:frame>"
    note = "<text:note><text:note-body><text:p>of {}</text:p></text:note-body></text:note>"
    shape = f"<draw:custom-shape><text:p>Shape{note.format('it')}</text:p></draw:custom-shape>"
    text = read(
        tmp_path,
        f"<text:h>{box}Title</text:h><text:list><text:list-item><text:p>{shape}One{note.format('one')}</text:p>"
        f"</text:list-item><text:list-item><text:p>Two</text:p></text:list-item></text:list>",
    ).text
    assert text == "# Title\n\n# Top\n\n- point\n\n- One[2]\n\n  Shape[1]\n\n- Two\n\n[1] of it\n\n[2] of one"


def test_templates_of_indexes_and_programs_are_no_text(tmp_path: Path) -> None:
    kinds = ("illustration-index", "table-index", "object-index", "user-index", "alphabetical-index", "bibliography")
    template = "<text:index-title-template>Template</text:index-title-template>"
    index = "".join(
        f"<text:{kind}><text:{kind}-source>{template}</text:{kind}-source><text:index-body><text:p>{kind}</text:p>"
        f"</text:index-body></text:{kind}>"
        for kind in kinds
    )
    assert read(tmp_path, f"{index}<text:p><text:script>run()</text:script>x</text:p>").text == "\n\n".join(
        (*kinds, "x")
    )


def test_long_titles_and_authors_are_cut(tmp_path: Path) -> None:
    author = "<dc:creator>Ann Ann Ann</dc:creator>" * 1_000
    comment = f"<office:annotation>{author}<text:p>Why?</text:p></office:annotation>"
    assert len(read(tmp_path, f"<text:p>x{comment}</text:p>").text) < 300
    path = write_opendocument(tmp_path / "b.odt", "<text:p>x</text:p>")
    parts = parts_of(path)
    parts["meta.xml"] = str(parts["meta.xml"], "utf-8").replace(
        "<dc:title>", "<dc:title>x</dc:title><dc:title>" * 9_999
    )
    assert load(write_zip(path, parts)).title == "x" * 300


def refused(path: Path, told: str, limits: ParseLimits | None = None) -> None:
    with pytest.raises(LoadError, match=told):
        load(path, limits)


def test_what_is_something_else(tmp_path: Path) -> None:
    path = write_opendocument(tmp_path / "a.odt", "<text:p>x</text:p>")
    assert load(path).text == "x"
    refused(write_zip(tmp_path / "b.ods", parts_of(path)), "is an OpenDocument text, not an OpenDocument spreadsheet")
    refused(
        write_zip(tmp_path / "b.docx", parts_of(path)), "not a Word document as its name says: rename it to end in .odt"
    )
    template = parts_of(path) | {"mimetype": "application/vnd.oasis.opendocument.text-template"}
    assert load(write_zip(tmp_path / "c.ott", template)).text == "x"
    untyped = {name: part for name, part in parts_of(path).items() if name != "mimetype"}
    assert load(write_zip(tmp_path / "c.odt", untyped)).text == "x"
    graphics = dict.fromkeys(("mimetype", "META-INF/manifest.xml"), "application/vnd.oasis.opendocument.graphics")
    refused(write_zip(tmp_path / "d.odt", parts_of(path) | graphics), "is a ZIP archive, not an OpenDocument text")
    refused(write_docx(tmp_path / "e.docx", [("Normal", "x")]).rename(tmp_path / "e.odt"), "is a Word document")


def test_damaged_and_encrypted_files(tmp_path: Path) -> None:
    path = write_opendocument(tmp_path / "a.odt", "<text:p>x</text:p>")
    parts = parts_of(path)
    rest = {key: part for key, part in parts.items() if key != "content.xml"}
    refused(write_zip(tmp_path / "b.odt", rest), "is damaged or cut short")
    refused(write_zip(tmp_path / "b.odt", parts | {"content.xml": "<a><b></a>"}), "is damaged or cut short")
    locked = parts | {"META-INF/manifest.xml": "<manifest:encryption-data/>"}
    refused(write_zip(tmp_path / "b.odt", locked), "is encrypted: open it in its program and save it without")
    refused(write_zip(tmp_path / "b.odt", parts | {"encrypted-package": "x"}), "is encrypted")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(path, "is damaged or cut short")


@pytest.mark.parametrize("name", ["content.xml", "styles.xml", "meta.xml"])
def test_entities_are_refused(name: str, tmp_path: Path) -> None:
    path = write_opendocument(tmp_path / "a.odt", "<text:p>x</text:p>")
    laughs = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE x [<!ENTITY a0 "ha">{laughs}<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&a9;&f;</x>'
    refused(write_zip(path, parts_of(path) | {name: bomb}), "declares a type and may declare entities")


def test_bombs(tmp_path: Path) -> None:
    big = write_opendocument(tmp_path / "a.odt", f"<text:p>{'x' * 2_000_000}</text:p>")
    refused(big, "expands to 1.9 MiB of markup", ParseLimits(max_xml_bytes=1 << 20))
    refused(big, "gives more than 0.1 million characters", ParseLimits(max_characters=100_000))
    spans = 'table:number-columns-spanned="999999999" table:number-rows-spanned="99999999"'
    cells = f"<table:table-cell {spans}><text:p>a</text:p></table:table-cell><table:table-cell/>"
    row = f"<table:table-row>{cells}</table:table-row>"
    assert len(read(tmp_path, f"<table:table>{row * 50}</table:table>").text) < 100_000


DEEP = {
    "lists": "<text:list><text:list-item>",
    "tables": "<table:table><table:table-row><table:table-cell>",
    "spans": "<text:span>",
    "notes": "<text:note><text:note-body>",
    "comments": "<office:annotation>",
    "skipped": "<text:tracked-changes>",
    "boxes": "<text:p><draw:text-box>",
}


@pytest.mark.parametrize("name", DEEP)
def test_elements_within_each_other(name: str, tmp_path: Path) -> None:
    """A test that hangs here is the failure."""
    opened = DEEP[name]
    closed = "".join(f"</{tag}" for tag in reversed(opened.split("<")[1:]))
    text = read(tmp_path, f"{opened * 50_000}<text:p>deep</text:p>{closed * 50_000}<text:p>words</text:p>").text
    assert "words" in text
