"""Tables of text: delimiters, quotes, titles and headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.loaders import parse
from app.loaders.base import Parsed


def parsed(name: str, data: str) -> Parsed:
    found = parse(Path(name), data.encode())
    found.check_integrity()
    return found


def test_rows_tell_their_columns() -> None:
    table = 'name,note\n"Ann, A.","two\nlines"\n\nBob,\n,alone,more\n'
    items = ["name: Ann, A.\nnote: two\nlines", "name: Bob", "note: alone\ncolumn 3: more"]
    assert parsed("a.csv", table).text == "\n\n".join(items)


@pytest.mark.parametrize(
    ("name", "mark"), [("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.csv", "|"), ("a.tsv", "\t")]
)
def test_delimiters_are_recognised(name: str, mark: str) -> None:
    assert parsed(name, f'a{mark}"b, c; d"\n1{mark}2\n').text == "a: 1\nb, c; d: 2"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            "Statement, Berlin\nDay;Text;Sum\n1 May;Rent;1.234,50\n2 May;Power;99,10\n",
            "Day: 1 May\nText: Rent\nSum: 1.234,50",
        ),
        ("\n1,5;2,5;3,5\n1,6;2,6;3,6\n", "1,5: 1,6\n2,5: 2,6\n3,5: 3,6"),
        (
            "Films; a list\n\nid,title,year\n1,Rome,1945\n2,Paris; Texas,1984\n",
            "id: 2\ntitle: Paris; Texas\nyear: 1984",
        ),
        (
            'Day;Note\n1 May;"one, two,\nthree, four, five,\nsix"\n',
            "Day: 1 May\nNote: one, two,\nthree, four, five,\nsix",
        ),
        (
            'id,title,code\n1,Loop,"int main() {\nint a = 1;\nint b = 2;\nreturn a;\n}"\n2,No,x\n',
            "id: 1\ntitle: Loop\ncode: int main() {\nint a = 1;\nint b = 2;\nreturn a;\n}",
        ),
        ('Code\nid,no,text\n1,2,"{' + "\na;" * 30 + '}"\n', "id: 1\nno: 2\ntext: {" + "\na;" * 30 + "}"),
        ('id,text\n1,"a | b\nc | d\ne | f\ng | h"\n', "id: 1\ntext: a | b\nc | d\ne | f\ng | h"),
        ('"1","x; y"\n"2","z; w"\n', "1: 2\nx; y: z; w"),
        ("Films; a list\nid,no,text\n1,2,a; b\n2,3,c; d\n", "id: 2\nno: 3\ntext: c; d"),
        ('id,text\n1,"' + "a; b\n" * 20_000 + '"\n', "id: 1\ntext: " + "a; b\n" * 19_999 + "a; b"),
    ],
)
def test_the_delimiter_is_what_the_rows_agree_on(table: str, text: str) -> None:
    assert text in parsed("a.csv", table).text.split("\n\n")


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
@pytest.mark.parametrize("rest", ["", '2\tSo ends it"\t1949\n', '2\t"No end\t1949\n', '2\tUmberto "D"\t1949\n'])
def test_a_quote_that_stands_for_itself_swallows_no_rows_of_tabs(name: str, rest: str) -> None:
    items = parsed(name, f'id\ttitle\tyear\n1\t"Rome, open city\t1945\n{rest}3\tSenso\t1954\n').text.split("\n\n")
    assert items[0] == 'id: 1\ntitle: "Rome, open city\nyear: 1945'
    assert items[-1] == "id: 3\ntitle: Senso\nyear: 1954"
    assert len(items) == 2 + bool(rest)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ('a\tb\n"two\nlines"\t"1\t2"\n', "a: two\nlines\nb: 1\t2"),
        (
            'id\ttext\tmore\n1\t"line one\nline\ttwo"\tz\n2\t"b"\tq\n',
            "id: 1\ntext: line one\nline\ttwo\nmore: z\n\nid: 2\ntext: b\nmore: q",
        ),
        ('a\tb\n"two\nlines"\t1\n2\t"x"y\n', "a: two\nlines\nb: 1\n\na: 2\nb: xy"),
        ('a\n"b\nc\n', 'a: "b\n\na: c'),
    ],
)
def test_quoted_cells_of_tabs_are_read_as_such(table: str, text: str) -> None:
    assert parsed("a.tsv", table).text == text


def test_cells_may_be_long() -> None:
    assert parsed("a.csv", f"id,article\n1,{'word ' * 100_000}\n").text.count("word") == 100_000


def test_a_first_row_that_is_no_header_is_told_whole() -> None:
    first, second = "First article. " * 20 + "Its end.", "Second article."
    assert parsed("a.csv", f'"{first}",1\n"{second}",2\n').text == f"{first} 1\n\n{first[:200]}: {second}\n1: 2"


def test_names_of_empty_columns_are_told() -> None:
    assert parsed("a.csv", "name,note,,age\nAnn,,,7\nBob, \n").text == (
        "name: Ann\nage: 7\n\nname: Bob\n\ncolumns without values: note"
    )


def test_one_row_alone_is_no_header() -> None:
    assert parsed("a.csv", "just,these,cells").text == "just these cells"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ('id, name, qty\n1, "Smith, John", 5\n', "id: 1\nname: Smith, John\nqty: 5"),
        ('id; name; qty\n1; "Smith; John" ; 5,0\n', "id: 1\nname: Smith; John\nqty: 5,0"),
        ('id,text\n  1,   plain "words" \n', 'id: 1\ntext: plain "words"'),
    ],
)
def test_spaces_may_stand_around_a_quoted_cell(table: str, text: str) -> None:
    assert parsed("a.csv", table).text == text


@pytest.mark.parametrize("mark", [",", ";", "|"])
def test_a_quote_that_is_never_closed_swallows_no_rows(mark: str) -> None:
    """It stands for itself in its cell; quotes that enclose the cells of other rows still do."""
    rows = 'id,size,note\n1,"5 inch,foo\n2, "6,bar\n3,"seven, or\neight",baz\n4,"say ""x""",qux\n'
    items = [
        'id: 1\nsize: "5 inch\nnote: foo',
        'id: 2\nsize: "6\nnote: bar',
        f"id: 3\nsize: seven{mark} or\neight\nnote: baz",
        'id: 4\nsize: say "x"\nnote: qux',
    ]
    assert parsed("a.csv", rows.replace(",", mark)).text.split("\n\n") == items


def test_a_quote_that_is_never_closed_hides_no_delimiter() -> None:
    rows = 'id;size;note\n1;"5 inch;2,5\n2;6;3,5\n3;7;1,5\n'
    assert parsed("a.csv", rows).text.startswith('id: 1\nsize: "5 inch\nnote: 2,5\n\nid: 2')


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_breaks_within_quotes_stay_in_their_cell(end: str) -> None:
    rows = ["id,note,by", '1,"Dear Ann,', "", 'yes, ""no"",', 'Bob",Bob', '2,"","a', 'b"']
    note, by = end.join(["Dear Ann,", "", 'yes, "no",', "Bob"]), end.join("ab")
    assert parsed("a.csv", end.join(rows)).text == f"id: 1\nnote: {note}\nby: Bob\n\nid: 2\nby: {by}"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("Quarterly report\nname,value\na,1\nb,2\n", "Quarterly report\n\nname: a\nvalue: 1\n\nname: b\nvalue: 2"),
        ("Report,\nby Ann,\nname,value\na,1\n", "Report\n\nby Ann\n\nname: a\nvalue: 1"),
        ("# comment\nid,name\n1,x\n", "# comment\n\nid: 1\nname: x"),
        ("People\ncity,2020\nBerlin,3\n", "People\n\ncity: Berlin\n2020: 3"),
    ],
)
def test_a_title_above_two_columns_is_an_item(table: str, text: str) -> None:
    assert parsed("a.csv", table).text == text


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (",value\na,1\nb,2\n", "column 1: a\nvalue: 1\n\ncolumn 1: b\nvalue: 2"),
        ("name,\nAnn,7\nBob,8\n", "name: Ann\ncolumn 2: 7\n\nname: Bob\ncolumn 2: 8"),
        ("task\nbuy milk\ncall Ann,soon\nsleep\n", "task: buy milk\n\ntask: call Ann\ncolumn 2: soon\n\ntask: sleep"),
        ("task\nbuy milk\n", "task: buy milk"),
    ],
)
def test_a_header_of_one_cell_is_no_title(table: str, text: str) -> None:
    assert parsed("a.csv", table).text == text


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("first", ["sep=;\n", '"sep=;"\r\n', "SEP=;\r"])
def test_a_first_line_may_name_the_delimiter(first: str, name: str) -> None:
    assert parsed(name, f"{first}a,x;b,y\n1,5;2,5\n").text == "a,x: 1,5\nb,y: 2,5"


@pytest.mark.parametrize("rows", ["A,1\nB,2\nC,3", "Bolt,steel\nNut,brass\nPin,zinc"])
def test_a_column_without_a_name_makes_no_header_of_the_first_row(rows: str) -> None:
    told = [dict(zip(("name", "column 2"), row.split(","), strict=True)) for row in rows.split("\n")]
    items = ["\n".join(f"{name}: {value}" for name, value in row.items()) for row in told]
    assert parsed("a.csv", f"name\n{rows}\n").text == "\n\n".join(items)
