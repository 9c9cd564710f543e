"""Workbooks: values as sheets show them, titles, and what is told."""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path

import pytest

from app.errors import LoadError
from app.loaders import load, parse, xlsx
from app.loaders.base import ParseLimits
from tests.app.loaders.files import parts_of, write_xlsx, write_zip


def test_xlsx_rows_tell_their_columns(tmp_path: Path) -> None:
    lamps: list[list[object]] = [
        ["Lamps of 1884", None, None],
        ["lamp", "lit", "oil"],
        ["one", date(1884, 3, 1), 0.1 + 0.2],
        [None, None, 7],
    ]
    times: list[list[object]] = [["at", "on"], [datetime(1884, 3, 1, 6, 30), True]]
    parsed = load(write_xlsx(tmp_path / "l.xlsx", {"Lamps": lamps, "Blank": [], "Times": times}))
    assert [parsed.text[page.start : page.end] for page in parsed.pages] == [
        "# Lamps\n\nLamps of 1884\n\nlamp: one\nlit: 1884-03-01\noil: 0.3\n\noil: 7",
        "",
        "# Times\n\nat: 1884-03-01 06:30:00\non: TRUE",
    ]
    parsed.check_integrity()


def write_charted(path: Path, is_drawn: bool) -> Path:
    """Sheets A, B, which is hidden, and C, and a tab of a chart behind each."""
    from openpyxl import Workbook
    from openpyxl.chart import BarChart

    book = Workbook()
    for title, state in (("A", "visible"), ("B", "hidden"), ("C", "visible")):
        book.create_sheet(title).append([title])
        book[title].sheet_state = state
        tab = book.create_chartsheet(f"{title} drawn")
        if is_drawn:
            tab.add_chart(BarChart())
    book.remove(book["Sheet"])
    book.save(path)
    return path


def test_xlsx_a_sheet_has_the_number_of_its_tab(tmp_path: Path) -> None:
    parsed = load(write_charted(tmp_path / "c.xlsx", is_drawn=True))
    parsed.check_integrity()
    places = [parsed.locate(parsed.text.index(f"# {title}"), len(parsed.text))[0] for title in "ABC"]
    assert [(place.page, place.label) for place in places] == [(1, "sheet"), (3, "sheet"), (5, "sheet")]


def test_xlsx_an_odd_tab_of_a_chart_costs_nothing(tmp_path: Path) -> None:
    """One that holds none, and one that a name is defined for."""
    path, part = write_charted(tmp_path / "c.xlsx", is_drawn=False), "xl/workbook.xml"
    assert load(path).text.startswith("# A\n\nA")
    whole = parts_of(write_charted(path, is_drawn=True))[part]
    assert isinstance(whole, bytes)
    names = b'<definedNames><definedName name="x" localSheetId="1">A!$A$1</definedName></definedNames>'
    named = re.sub(rb"<definedNames ?/>", names, whole)
    assert names in named
    write_zip(path, parts_of(path) | {part: named})
    assert load(path).text.startswith("# A\n\nA")


def test_xlsx_errors_of_formulas_stay_and_warnings_are_quiet(tmp_path: Path) -> None:
    from openpyxl import load_workbook
    from openpyxl.worksheet.datavalidation import DataValidation

    path = write_xlsx(tmp_path / "e.xlsx", {"S": [["a", "b"], ["#DIV/0!", "#REF!"]]})
    book = load_workbook(path)
    book["S"].add_data_validation(DataValidation(type="list", formula1='"x,y"'))
    book.save(path)
    assert load(path).text.endswith("a: #DIV/0!\nb: #REF!")


def test_xlsx_formulas_without_a_value_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_xlsx(tmp_path / "f.xlsx", {"S": [["a", "b"], [1, "=A2"], ["=A2", "=A3"]], "T": [["c"], ["=S!A2"]]})
    sheet = "xl/worksheets/sheet1.xml"
    computed = ('<c r="B3"><f>A3</f><v/></c>', '<c r="B3" t="str"><f>A3</f><v></v></c>'), ("<v/>", "<v>7</v>")
    told = "cells are left out: their formulas have not been computed yet"
    for number, pair in zip((4, 3, 1), (("S", "S"), *computed), strict=True):
        whole = parts_of(path)[sheet]
        assert isinstance(whole, bytes)
        changed = whole.decode().replace("<v></v>", "<v/>").replace("<v />", "<v/>").replace(*pair)
        caplog.clear()
        load(write_zip(path, parts_of(path) | {sheet: changed}))
        assert [record.getMessage() for record in caplog.records] == [
            f"{path}: {number} {told}; open it in a spreadsheet program and save it"
        ]
    caplog.clear()
    load(write_xlsx(path, {"S": [["a"], [None], [1]]}))
    assert not caplog.records


def test_xlsx_a_title_above_two_columns_is_an_item(tmp_path: Path) -> None:
    rows: list[list[object]] = [["Price list 2024", None], ["item", "price"], ["lamp", 12]]
    assert load(write_xlsx(tmp_path / "p.xlsx", {"S": rows})).text == (
        "# S\n\nPrice list 2024\n\nitem: lamp\nprice: 12"
    )


def test_xlsx_a_number_that_is_no_date_stays_a_number(tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.worksheets[0]
    for row in (["name", "day", "more"], ["Ann", 20240131, 45322], [None, -4e9, 1.5e15], ["Bob", "#VALUE!", 1]):
        sheet.append(row)
    for cell in ("B2", "C2", "B3", "C3"):
        sheet[cell].number_format = "yyyy-mm-dd"
    book.save(tmp_path / "d.xlsx")
    assert load(tmp_path / "d.xlsx").text.split("\n\n")[1:] == [
        "name: Ann\nday: 20240131\nmore: 2024-01-31",
        "day: -4000000000\nmore: 1500000000000000",
        "name: Bob\nday: #VALUE!\nmore: 1",
    ]


@pytest.mark.parametrize("is_shared", [True, False])
def test_xlsx_escaped_characters_are_told_as_such(is_shared: bool, tmp_path: Path) -> None:
    texts = ["one_x000D_\ntwo", "a_x005F_x000D_b", "_xD83D__xDE00_", "x_x0000__xD83D_", "snake_x_case"]
    path = write_xlsx(tmp_path / "e.xlsx", {"S_x0041_": [["head_x0021_"], *([text] for text in texts)]})
    if not is_shared:
        path = write_zip(path, parts_of(path) | {SHEET: inlined(path)})
    parsed = load(path)
    parsed.check_integrity()
    said = ["one\ntwo", "a_x000D_b", "\U0001f600", "x\ufffd", "snake_x_case"]
    assert parsed.text.split("\n\n") == ["# SA", *(f"head!: {text}" for text in said)]


def test_xlsx_a_number_that_is_no_date_stays_one_behind_rows_that_are_not_there(tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.worksheets[0]
    for at, value in {"A1": "name", "B1": "day", "A2": "Ann", "B2": 20240131, "A5": "Bob", "B5": 20240201}.items():
        sheet[at] = value
    sheet["B2"].number_format = sheet["B5"].number_format = "yyyy-mm-dd"
    book.save(tmp_path / "g.xlsx")
    assert load(tmp_path / "g.xlsx").text.split("\n\n")[1:] == ["name: Ann\nday: 20240131", "name: Bob\nday: 20240201"]


def test_xlsx_blank_rows_before_numbers_that_are_no_dates_look_at_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openpyxl import Workbook

    looks: list[str] = []

    class Watched(xlsx._NoDate):
        def __getattribute__(self, name: str) -> object:
            looks.append(name)
            return super().__getattribute__(name)

    book, cells = Workbook(), 40
    for at in range(1, cells + 1):
        cell = book.worksheets[0].cell(500, at, 20240100 + at)
        cell.number_format = "yyyy-mm-dd"
    book.save(tmp_path / "w.xlsx")
    monkeypatch.setattr(xlsx, "_NoDate", Watched)
    assert load(tmp_path / "w.xlsx").text == "# Sheet\n\n" + " ".join(str(20240101 + at) for at in range(cells))
    assert cells <= len(looks) <= 10 * cells


def test_xlsx_what_looks_like_an_escape_stays_text_where_texts_are_shared(tmp_path: Path) -> None:
    """As Excel writes them."""
    parts = parts_of(write_xlsx(tmp_path / "s.xlsx", {"S": [["head"]]}))
    texts = ("head", "_x005F_x000D_ and _x005F_x0041_", "one_x000D_\ntwo")
    told = "".join(f'<si><t xml:space="preserve">{text}</t></si>' for text in texts)
    cells = "".join(f'<row><c t="s"><v>{number}</v></c></row>' for number in range(len(texts)))
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    part = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>'
    parts |= {
        SHEET: f"<worksheet {space}><sheetData>{cells}</sheetData></worksheet>",
        "xl/sharedStrings.xml": f"<sst {space}>{told}</sst>",
        "[Content_Types].xml": bytes(parts["[Content_Types].xml"]).decode().replace("</Types>", part),  # type: ignore[arg-type]
    }
    text = load(write_zip(tmp_path / "t.xlsx", parts)).text
    assert text.split("\n\n")[1:] == ["head: _x000D_ and _x0041_", "head: one\ntwo"]


SHEET = "xl/worksheets/sheet1.xml"


def inlined(path: Path) -> str:
    """The first sheet with its shared texts written in their cells."""
    from openpyxl import load_workbook

    rows = load_workbook(path).worksheets[0].iter_rows(values_only=True)
    cells = "".join(f'<row><c t="inlineStr"><is><t xml:space="preserve">{row[0]}</t></is></c></row>' for row in rows)
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    return f'<worksheet xmlns="{space}"><sheetData>{cells}</sheetData></worksheet>'


def test_xlsx_a_row_is_bounded_before_its_text_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that refer to the same text take a few bytes each."""
    path = write_xlsx(tmp_path / "b.xlsx", {"S": [["h"] * 400, ["x" * 30_000] * 400]})

    def item(header: object, row: list[str]) -> str:
        raise AssertionError(f"{sum(map(len, row))} characters were not counted")

    monkeypatch.setattr("app.loaders.blocks._item", item)
    with pytest.raises(LoadError, match=r"more than 1\.0 million characters"):
        parse(path, path.read_bytes(), ParseLimits(max_characters=1_000_000))


def test_xlsx_a_strict_workbook_is_told_as_such(tmp_path: Path) -> None:
    path, book = write_xlsx(tmp_path / "s.xlsx", {"S": [["a"], [1]]}), "xl/workbook.xml"
    whole = parts_of(path)[book]
    assert isinstance(whole, bytes)
    ordinary, strict = b"schemas.openxmlformats.org/spreadsheetml/2006/main", b"purl.oclc.org/ooxml/spreadsheetml/main"
    write_zip(path, parts_of(path) | {book: whole.replace(ordinary, strict)})
    with pytest.raises(LoadError, match="is a Strict Open XML workbook"):
        load(path)
