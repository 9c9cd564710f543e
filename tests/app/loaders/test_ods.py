"""OpenDocument spreadsheets: values as in workbooks, and repeats that are bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import LoadError
from app.loaders import load
from app.loaders.base import Parsed, ParseLimits
from tests.app.loaders.files import write_opendocument

SMALL = ParseLimits(max_characters=100_000, max_cells=50_000, max_pages=20)


def cell(text: str = "", times: int = 1, **given: str) -> str:
    told = "".join(f' office:{name.replace("_", "-")}="{value}"' for name, value in given.items())
    repeated = f' table:number-columns-repeated="{times}"' if times != 1 else ""
    shown = "".join(f"<text:p>{part}</text:p>" for part in text.split("|") if part)
    return f"<table:table-cell{told}{repeated}>{shown}</table:table-cell>"


def row(*cells: str, times: int = 1) -> str:
    repeated = f' table:number-rows-repeated="{times}"' if times != 1 else ""
    return f"<table:table-row{repeated}>{''.join(cells)}</table:table-row>"


def sheet(*rows: str, name: str = "S") -> str:
    return f'<table:table table:name="{name}">{"".join(rows)}</table:table>'


def read(tmp_path: Path, *sheets: str, limits: ParseLimits | None = None) -> Parsed:
    parsed = load(write_opendocument(tmp_path / "a.ods", "".join(sheets)), limits)
    parsed.check_integrity()
    return parsed


def test_sheets_are_pages_and_rows_items(tmp_path: Path) -> None:
    lamps = sheet(row(cell("lamp"), cell("oil")), row(cell("one"), cell("3 l")), name="Lamps &amp; oil")
    parsed = read(tmp_path, lamps, sheet(row(cell())), sheet(row(cell("x"), cell("y")), name="End"))
    assert (parsed.kind, parsed.title) == ("items", "a")
    assert [parsed.text[page.start : page.end] for page in parsed.pages] == [
        "# Lamps & oil\n\nlamp: one\noil: 3 l",
        "",
        "# End\n\nx y",
    ]
    assert [(page.number, page.label) for page in parsed.pages] == [(1, "sheet"), (2, "sheet"), (3, "sheet")]


@pytest.mark.parametrize(
    ("shown", "given", "text"),
    [
        ("1,234.5 ", {"value_type": "float", "value": "1234.5"}, "1234.5"),
        ("0.3", {"value_type": "float", "value": "0.30000000000000004"}, "0.3"),
        ("odd", {"value_type": "float", "value": "odd"}, "odd"),
        ("12 %", {"value_type": "percentage", "value": "0.12"}, "12 %"),
        ("3.00 €", {"value_type": "currency", "value": "3", "currency": "EUR"}, "3.00 €"),
        ("31.01.24", {"value_type": "date", "date_value": "2024-01-31"}, "2024-01-31"),
        ("31.01.24", {"value_type": "date", "date_value": "2024-01-31T12:30:00"}, "2024-01-31 12:30:00"),
        ("WAHR", {"value_type": "boolean", "boolean_value": "true"}, "TRUE"),
        ("12:30", {"value_type": "time", "time_value": "PT12H30M00S"}, "12:30"),
        ("two<text:s/>words<text:line-break/>x|next", {"value_type": "string"}, "two words\nx\nnext"),
        ("", {"value_type": "string", "string_value": "told"}, "told"),
        ("#DIV/0!", {"value_type": "string"}, "#DIV/0!"),
    ],
)
def test_values(shown: str, given: dict[str, str], text: str, tmp_path: Path) -> None:
    rows = row(cell("name"), cell("value")), row(cell("n"), cell(shown, **given))
    assert read(tmp_path, sheet(*rows)).text == f"# S\n\nname: n\nvalue: {text}"


def test_repeats(tmp_path: Path) -> None:
    rows = (
        row(cell("a"), cell("b", times=2), cell("c")),
        row(cell(times=3), cell("far"), cell(times=16_380)),
        row(cell(times=16_384), times=1_000_000),
        row(cell("x", times=2), times=2),
        row(cell(times=16_384), times=48_000),
    )
    text = read(tmp_path, sheet(*rows), limits=SMALL).text
    assert text == "# S\n\nc: far\n\na: x\nb: x\n\na: x\nb: x\n\ncolumns without values: b"


def test_what_is_no_cell_of_a_sheet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inner = f"<draw:frame><draw:object/>{sheet(row(cell('drawn')))}<text:p>box</text:p></draw:frame>"
    comment = "<office:annotation><dc:creator>Ann</dc:creator><text:p>said</text:p></office:annotation>"
    full = cell("kept").replace("<text:p>", f"{comment}{inner}<text:p>")
    covered = "<table:covered-table-cell><text:p>hidden</text:p></table:covered-table-cell>"
    link = f"<table:dde-links>{sheet(row(cell('linked')))}</table:dde-links>"
    copied = sheet("<table:table-source/>", row(cell("copied")), name="'file:///x.ods'#$S")
    deleted = f"<table:tracked-changes>{sheet(row(cell('deleted')))}</table:tracked-changes>"
    shapes = f"<table:shapes>{inner}</table:shapes>"
    text = read(tmp_path, deleted, sheet(shapes, row(full, covered, cell("last"))), copied, link).text
    assert text == "# S\n\nkept last"
    assert "a.ods: left out are 2 embedded objects, 1 comments" in caplog.text


def test_sheets_that_are_linked_are_read(tmp_path: Path) -> None:
    """Programs copy them, and show them as others."""
    linked = sheet('<table:table-source table:mode="copy-all"/>', row(cell("oil"), cell("of 1884")), name="Linked")
    assert read(tmp_path, linked).text == "# Linked\n\noil of 1884"


def refused(tmp_path: Path, told: str, *rows: str, limits: ParseLimits = SMALL) -> None:
    with pytest.raises(LoadError, match=told):
        read(tmp_path, sheet(*rows), limits=limits)


def test_bombs_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, "has a row of more than 16,384 columns", row(cell("x", times=999_999_999)))
    refused(tmp_path, "has a row of more than 16,384 columns", row(cell(times=16_384), cell("x")))
    refused(tmp_path, "has more than 50,000 cells", row(cell("x"), times=999_999_999))
    refused(tmp_path, "has more than 50,000 cells", *(row(cell(times=16_000), cell("x")) for _ in range(4)))
    refused(tmp_path, "gives more than 0.1 million characters", row(cell("x" * 5_000, times=100)))
    refused(tmp_path, "gives more than 0.1 million characters", row(cell("x" * 5_000), times=1_000))
    refused(tmp_path, "holds no values", row(cell(times=16_384), times=999_999_999))
    many = [sheet(row(cell("x"))) for _ in range(21)]
    with pytest.raises(LoadError, match="has more than 20 sheets"):
        read(tmp_path, *many, limits=SMALL)


def test_rows_are_not_read_as_a_tree(tmp_path: Path) -> None:
    rows = [row(cell("word " * 200)) for _ in range(2_000)]
    assert len(read(tmp_path, sheet(*rows), limits=ParseLimits(max_xml_bytes=1 << 20)).text) > 1_900_000


@pytest.mark.parametrize("opened", ["<table:table>", "<text:p>", "<draw:frame>"])
def test_elements_within_each_other(opened: str, tmp_path: Path) -> None:
    """A test that hangs here is the failure."""
    deep = opened * 50_000 + "deep" + opened.replace("<", "</") * 50_000
    assert "words" in read(tmp_path, sheet(row(cell(deep), cell("words")))).text
